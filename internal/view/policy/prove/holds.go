package prove

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Assertion says which permissions every path that a pattern matches has.
type Assertion struct {
	Pattern     string
	Least, Most policy.Permission
}

// Parse reads "[at-least|at-most] PERMISSION PATTERN". Errors: Invalid.
func Parse(text string) (Assertion, error) {
	bound, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	name := bound
	if bound == "at-least" || bound == "at-most" {
		name, rest, _ = strings.Cut(strings.TrimSpace(rest), " ")
	}
	permission, err := policy.ParsePermission(name)
	a := Assertion{strings.TrimSpace(rest), permission, permission}
	switch {
	case name == "":
		return a, errdefs.New(errdefs.Invalid, "assertion %s: the permission is missing: want PERMISSION PATTERN, such as 'none **/*.pem'", vpath.Quote(text))
	case err != nil:
		return a, errdefs.New(errdefs.Invalid, "assertion %s: %w: want PERMISSION PATTERN, such as 'none **/*.pem'", vpath.Quote(text), err)
	case a.Pattern == "":
		return a, errdefs.New(errdefs.Invalid, "assertion %s: the pattern is missing: want PERMISSION PATTERN, such as 'none **/*.pem'", vpath.Quote(text))
	case bound == "at-least":
		a.Most = policy.Write
	case bound == "at-most":
		a.Least = policy.None
	}
	return a, nil
}

func (a Assertion) breaks(got policy.Permission) bool { return got < a.Least || got > a.Most }

// Counterexample is a path that does not have the permission that it should have.
type Counterexample struct {
	Path     vpath.Path
	Dir      bool // a directory at the path does not, a file does
	Decision policy.Decision
}

// Got is the permission that the path has.
func (c Counterexample) Got() policy.Permission { return permissionOf(c.Decision, c.Dir) }

// Holds reports whether the assertion holds for every path. If not, the counterexample is one with
// the fewest elements. A directory that p shows because something below it is granted
// (Decision.Traversable) has the permission view. Errors: Invalid (the pattern), Exhausted.
func Holds(p *policy.Policy, a Assertion) (c Counterexample, holds bool, err error) {
	rule := policy.Rule{Pattern: a.Pattern, Permission: policy.Write, Source: "assertion"}
	matches, err := policy.Compile([]policy.Rule{rule}, policy.Options{})
	if err != nil {
		return c, false, err
	}
	over := func(_, match policy.State) bool { return match.Ends() }
	holds = true
	err = walk(p, matches, over, func(path func() vpath.Path, d, match policy.Decision) verdict {
		file, dir := a.breaks(d.Permission), a.breaks(d.ForDir())
		switch {
		case match.Rule != policy.NoRule && (file || dir):
			holds, c = false, Counterexample{Path: path(), Dir: !file, Decision: d}
			return stop
		case d.ForDir() == policy.None && a.Least == policy.None:
			return skip // all below is none
		}
		return enter
	})
	return c, holds, err
}
