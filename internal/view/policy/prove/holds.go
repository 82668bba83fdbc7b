package prove

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Counterexample is a path that does not have the permission that it should have.
type Counterexample struct {
	Path     vpath.Path
	Dir      bool // only a directory at the path does not
	Decision policy.Decision
}

// Got is the permission that the path has.
func (c Counterexample) Got() policy.Permission {
	if c.Dir {
		return c.Decision.ForDir()
	}
	return c.Decision.Permission
}

// Holds reports whether p gives each path that pattern matches at most, or exactly, the permission.
// If not, the counterexample is the shortest path that differs. A directory that p shows because
// something below it is granted (Decision.Traversable) has the permission view.
// Errors: Invalid (the pattern), Exhausted.
func Holds(p *policy.Policy, pattern string, permission policy.Permission, exactly bool) (c Counterexample, holds bool, err error) {
	matches, err := policy.Compile([]policy.Rule{{Pattern: pattern, Permission: policy.Write, Source: "pattern"}}, policy.Options{})
	if err != nil {
		return c, false, err
	}
	wrong := func(got policy.Permission) bool { return got > permission || exactly && got != permission }
	over := func(_, match policy.State) bool { return match.Ends() }
	holds = true
	err = walk(p, matches, over, func(path func() vpath.Path, d, match policy.Decision) verdict {
		file, dir := wrong(d.Permission), wrong(d.ForDir())
		switch {
		case match.Rule != policy.NoRule && (file || dir):
			holds, c = false, Counterexample{Path: path(), Dir: !file, Decision: d}
			return stop
		case d.ForDir() == policy.None && !exactly:
			return skip // all below is none
		}
		return enter
	})
	return c, holds, err
}
