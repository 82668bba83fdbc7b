package policy

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

const strictPrefix = "strict:"

// ParseFlag returns the rule of a command-line flag: OriginHide with None for
// --hide, OriginFlag with the permission for --write, --read and --view. Its
// Source is the flag. isDir tells whether a path, relative to the workspace and
// without a slash at its end, is an existing directory; nil says no.
//
// A pattern that names an existing directory covers all below it, and note says
// so; otherwise note is "". For a widening flag it is then that directory
// alone; --hide keeps hiding the name wherever it occurs, if it has no slash.
//
// --hide=strict:PATTERN makes the rule strict, see Rule.Own; a name that itself
// begins so is written ./strict:….
//
// Errors: Invalid, beginning with the flag.
func ParseFlag(o Origin, permission Permission, pattern string, isDir func(string) bool) (rule Rule, note string, err error) {
	rule = Rule{Pattern: pattern, Permission: permission, Origin: o, Source: "--" + permission.String()}
	if o == OriginHide {
		rest, strict := strings.CutPrefix(pattern, strictPrefix)
		pattern = rest
		rule.Pattern, rule.Own, rule.Source = rest, !strict, "--hide"
	}
	err = rule.check()
	if err == nil {
		_, err = read(rule)
	}
	if err != nil {
		return Rule{}, "", errdefs.New(errdefs.Invalid, "%s: pattern %s: %w", rule.Source, vpath.Quote(pattern), err)
	}
	if autoType(pattern) != File || isDir == nil {
		return rule, "", nil
	}
	path, err := vpath.Parse(pattern)
	if err != nil || !isDir(path.Rel()) {
		return rule, "", nil //nolint:nilerr // read has accepted the pattern
	}
	if o == OriginHide {
		rule.Pattern = strings.TrimRight(pattern, "/") + "/"
	} else {
		rule.Type = Directory
	}
	return rule, vpath.Escape(pattern) + " is a directory: the rule covers all below it", nil
}

// Flag is a widening flag of the command line.
type Flag struct {
	Permission Permission
	Pattern    string
}

// String returns the flag for a shell: --write '.venv/'.
func (f Flag) String() string { return "--" + f.Permission.String() + " " + QuoteForShell(f.Pattern) }

// QuoteForShell puts text between single quotes if a shell would read it
// otherwise than as it is.
func QuoteForShell(text string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-./@%+=:,", c)
	}
	if text != "" && strings.IndexFunc(text, func(c rune) bool { return !plain(c) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
