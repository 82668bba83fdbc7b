// Package scratch reads what --scratch says: which directories of a workspace have contents
// that are no changes to review. It promises that no rule of the sandbox would apply less to
// such a directory than to the workspace, and keeps the contents of each beside the delta.
// Mounting them is left to package supervise/overlay.
package scratch

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Path is a scratch directory in the workspace. A record and messages have it without the
// leading slash.
type Path vpath.Path

// At returns the path in the workspace.
func (p Path) At() vpath.Path { return vpath.Path(p) }

// String returns the escaped path, relative to the workspace.
func (p Path) String() string { return vpath.Escape(p.At().Rel()) }

// MarshalText returns the path as messages have it.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.At().Text()), nil }

// UnmarshalText reads what MarshalText wrote. Errors: Invalid.
func (p *Path) UnmarshalText(text []byte) (err error) {
	*p, err = Parse(vpath.DecodeText(string(text)))
	return err
}

// gitDir is git's directory. Git runs programs that it names.
const gitDir = ".git"

// Parse reads the path of a directory, relative to the workspace. Errors: Invalid.
func Parse(text string) (Path, error) {
	const want = "want a directory of the workspace, such as node_modules"
	switch {
	case text == "":
		return "", errdefs.New(errdefs.Invalid, "it names no directory: %s", want)
	case strings.HasPrefix(text, "/"):
		return "", errdefs.New(errdefs.Invalid, "an absolute path: %s", want)
	}
	path, err := vpath.Parse(text)
	if err != nil {
		return "", errdefs.New(errdefs.Invalid, "%w: %s", err, want)
	}
	switch {
	case path.IsRoot():
		return "", errdefs.New(errdefs.Invalid, "it is the workspace itself: %s", want)
	case path == policy.ProjectFile:
		return "", errdefs.New(errdefs.Invalid, "it is the project's policy file: %s", want)
	}
	for name := range path.Elements() {
		switch {
		case name == gitDir:
			return "", errdefs.New(errdefs.Invalid, "git's directory must be reviewed: %s", want)
		case vpath.CheckName(name) != nil || vpath.IsOwnName(name):
			return "", errdefs.New(errdefs.Invalid, "name %s is not allowed: %s", vpath.Quote(name), want)
		}
	}
	return Path(path), nil
}

// most is how many scratch directories a sandbox may have. Each is a mount.
const most = 32

// ParseAll reads the paths of all scratch directories. Errors: Invalid.
func ParseAll(texts []string) ([]Path, error) {
	var paths []Path
	for _, text := range texts {
		path, err := Parse(text)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "scratch directory %s: %w", vpath.Quote(text), err)
		}
		paths = append(paths, path)
	}
	return paths, Check(paths, false)
}

// Check refuses too many directories, directories of which one contains another, and any
// with a limit of the disk, because it does not bound what they contain. Errors: Invalid.
func Check(paths []Path, limited bool) error {
	switch {
	case len(paths) > 0 && limited:
		return errdefs.New(errdefs.Invalid, "scratch directories and a limit of the disk exclude each other: it does not bound what they contain; leave one of them out")
	case len(paths) > most:
		return errdefs.New(errdefs.Invalid, "%d scratch directories, at most %d are allowed", len(paths), most)
	}
	for i, p := range paths {
		for _, other := range paths[:i] {
			if p.At().Within(other.At()) || other.At().Within(p.At()) {
				return errdefs.New(errdefs.Invalid, "scratch directory %s: it overlaps with %s; give the outer one", p, other)
			}
		}
	}
	return nil
}

// CheckPolicy refuses a directory below which a rule could let less be done than write:
// what a scratch directory has is not looked up in the policy. Names may be hidden there, if
// entries of the sandbox's own can be made at them. Errors: Precondition.
func CheckPolicy(p *policy.Policy, paths []Path) error {
	for _, path := range paths {
		if ok, reason := p.WritableBelow(path.At()); !ok {
			return errdefs.New(errdefs.Precondition, "scratch directory %s: everything in it must be writable, or hidden by rules that are not strict; this rule does not allow that: %s; "+
				"%sremove that rule, or leave the scratch directory out", path, reason, advice(p, path))
		}
	}
	return nil
}

// advice names the flag that makes everything in path writable, if there is one.
func advice(p *policy.Policy, path Path) string {
	pattern := path.At().Rel() + "/"
	rule, _, err := policy.ParseFlag(policy.OriginFlag, policy.Write, pattern, nil)
	if err != nil {
		return ""
	}
	with, err := p.With(rule)
	if err != nil {
		return ""
	}
	if ok, _ := with.WritableBelow(path.At()); !ok {
		return ""
	}
	return "add a rule that lets it be written (--write " + vpath.Quote(pattern) + "), "
}

// At returns the paths in the workspace.
func At(paths []Path) []vpath.Path {
	at := make([]vpath.Path, len(paths))
	for i, p := range paths {
		at[i] = p.At()
	}
	return at
}
