package userrules

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// Change allows one path, or one host.
type Change struct {
	Path       vpath.Path // "" for a host
	Permission policy.Permission
	Host       string
	Reason     string // for the person who reads the file
}

// head begins a new file.
const head = `# What you allow in every sandbox of this project, beside its policy. agentfense adds
# your answers here, and you can edit the file. It does not show what a policy hides.
# Of two rules with one pattern the first one counts.
version: 1
project: `

// Add adds a change to the file of a project, and returns the path. It makes a missing file.
// Errors: Invalid.
func Add(h *record.Home, project string, c Change) (file string, err error) {
	file = File(h.Dir(), project)
	err = h.Locked(func() error {
		text, err := readOrBegin(file, project)
		if err == nil {
			text, err = edited(text, file, project, c)
		}
		if err != nil || text == nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return record.HostError("rules of the project", err)
		}
		if err := safefs.WriteDurably(filepath.Dir(file), filepath.Base(file), text); err != nil {
			return record.HostError("rules of the project", err)
		}
		return nil
	})
	return file, err
}

// Check refuses a change that Add would refuse. Errors: as Add.
func Check(home, project string, c Change) error {
	file := File(home, project)
	text, err := readOrBegin(file, project)
	if err == nil {
		_, err = edited(text, file, project, c)
	}
	return err
}

// readOrBegin returns the text of a file, or that of a new one.
func readOrBegin(file, project string) ([]byte, error) {
	text, err := read(file)
	if text == nil && err == nil {
		text = []byte(head + yamlfile.Quote(record.HostPath(project).String()) + "\n")
	}
	return text, err
}

// edited returns the text with c, nil if it says so already.
func edited(text []byte, file, project string, c Change) ([]byte, error) {
	has, err := parse(text, file, project)
	if err != nil || has.allows(c) {
		return nil, err
	}
	if text, err = added(text, file, c); err != nil {
		return nil, err
	}
	if has, err = parse(text, file, project); err != nil {
		return nil, err
	}
	if !has.allows(c) {
		return nil, errdefs.New(errdefs.Invalid, "rules of the project %s: they cannot hold this", record.HostPath(file))
	}
	return text, nil
}

// allows reports whether the file says what c says.
func (r *Rules) allows(c Change) bool {
	if c.Host != "" {
		hosts, err := hostlist.Parse([]string{c.Host})
		return err == nil && !slices.ContainsFunc(hosts, func(h string) bool { return !slices.Contains(r.Hosts, h) })
	}
	return slices.ContainsFunc(r.Rules, func(has Rule) bool { return has.Exact == c.Path && has.Permission >= c.Permission })
}

// added returns the text with c.
func added(text []byte, file string, c Change) ([]byte, error) {
	item := yamlfile.Quote(c.Host)
	key := "hosts"
	if c.Host == "" {
		if !utf8.ValidString(string(c.Path)) {
			return nil, errdefs.New(errdefs.Invalid, "%s: the name is not UTF-8, and a file of rules cannot hold it", c.Path)
		}
		key, item = "rules", fmt.Sprintf("{pattern: %s, permission: %s, type: file}", yamlfile.Quote(string(c.Path)), c.Permission)
	}
	e, err := policyfile.Edit(text)
	if err == nil {
		e.Add(func(indent string) string {
			return fmt.Sprintf("%s# %s: %s\n%s- %s\n", indent, time.Now().Format(time.DateOnly), vpath.Escape(c.Reason), indent, item)
		}, key)
		text, err = e.Result()
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "%s: %w", record.HostPath(file), err)
	}
	return text, nil
}
