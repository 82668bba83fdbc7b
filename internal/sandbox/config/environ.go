package config

import (
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
)

// readEnviron reads the variables of keys, including empty ones. It refuses a variable with
// the form of a key that does not exist, because it would have no effect.
func (l *loader) readEnviron(environ []string) error {
	given := map[string]string{}
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		given[name] = text
		if isOfSection(name) && keyOf(name) == "" {
			return unknownVariable(name)
		}
	}
	for _, s := range settings {
		name := Variable(s.key)
		text, ok := given[name]
		if !ok {
			continue
		}
		if err := l.assign(s, origin{variable: name}, value{text: text}); err != nil {
			return err
		}
	}
	return nil
}

// AuditOf returns the bounds of the audit logs from the variables of environ. They also
// apply without a server. Errors: Invalid.
func AuditOf(environ []string) (Audit, error) {
	c, err := ofSection("audit", environ)
	return c.Audit, err
}

// HistoryOf returns the bounds of the history of applies from the variables of environ. They also
// apply without a server. Errors: Invalid.
func HistoryOf(environ []string) (History, error) {
	c, err := ofSection("history", environ)
	return c.History, err
}

// ofSection reads the variables of a section from environ.
func ofSection(section string, environ []string) (*Config, error) {
	var own []string
	for _, entry := range environ {
		if strings.HasPrefix(entry, Variable(section)+"_") {
			own = append(own, entry)
		}
	}
	l := loader{config: Default(), from: map[string]origin{}}
	err := l.readEnviron(own)
	return l.config, err
}

// Environ returns the variables that AuditOf reads a from.
func (a Audit) Environ() map[string]string {
	return map[string]string{
		Variable("audit.max_bytes_per_sandbox"): strconv.FormatInt(a.MaxBytesPerSandbox, 10),
		Variable("audit.max_bytes_per_owner"):   strconv.FormatInt(a.MaxBytesPerOwner, 10),
		Variable("audit.retention"):             a.Retention.String(),
	}
}

// isOfSection reports whether a variable's name begins with that of a section.
func isOfSection(name string) bool {
	for _, section := range below("") {
		if strings.HasPrefix(name, Variable(section)+"_") {
			return true
		}
	}
	return false
}

func keyOf(variable string) string {
	for _, s := range settings {
		if Variable(s.key) == variable {
			return s.key
		}
	}
	return ""
}

func unknownVariable(name string) error {
	var names []string // lower case, as Nearest compares
	for _, s := range settings {
		names = append(names, strings.ToLower(Variable(s.key)))
	}
	if near := nearest.Word(name, names); near != "" {
		return errdefs.New(errdefs.Invalid, "environment: unknown variable %s: did you mean %s?", name, strings.ToUpper(near))
	}
	return errdefs.New(errdefs.Invalid, "environment: unknown variable %s: no configuration key has this name", name)
}
