package prove

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Difference are paths that two policies decide differently, by the same rule.
type Difference struct {
	Path vpath.Path // one with the fewest elements
	Dir  bool       // only directories differ: whether one shows because of what is below it
	// Shown: only what a regular file shows differs. Kept: only what the end of a command applies
	// without a review does.
	Shown, Kept bool
	A, B        policy.Decision

	b *policy.Policy
}

// kept is what the deciding rule of p lets the end of a command apply: its Keep and Keys.
func kept(d policy.Decision, p *policy.Policy) policy.Rule {
	if d.Permission != policy.Write || d.Rule == policy.NoRule {
		return policy.Rule{}
	}
	r := p.Rule(d.Rule)
	return policy.Rule{Keep: r.Keep, Keys: r.Keys}
}

// From and To are the permissions that the policies give.
func (d Difference) From() policy.Permission { return permissionOf(d.A, d.Dir) }

// To is the permission that the second policy gives.
func (d Difference) To() policy.Permission { return permissionOf(d.B, d.Dir) }

func permissionOf(d policy.Decision, dir bool) policy.Permission {
	if dir {
		return d.ForDir()
	}
	return d.Permission
}

// Widens reports whether the second policy allows more.
func (d Difference) Widens() bool {
	switch {
	case d.Shown:
		return !d.A.Transform.IsZero() // another mask may show what the first one hides
	case d.Kept:
		return kept(d.B, d.b) != (policy.Rule{})
	}
	return d.To() > d.From()
}

// group is what the kinds of path of one Difference share.
type group struct {
	from, to policy.Permission
	only     [3]bool // Dir, Shown, Kept
	rule     int     // the rule that grants what is new, or hides what was granted
}

func groupOf(d Difference) group {
	g := group{d.From(), d.To(), [3]bool{d.Dir, d.Shown, d.Kept}, policy.NoRule}
	switch {
	case d.Dir:
	case d.B.Rule != policy.NoRule:
		g.rule = d.B.Rule
	default:
		g.rule = -2 - d.A.Rule // of the other policy
	}
	return g
}

// Diff returns where the policies differ, those with the shortest paths first. No difference means
// that they permit the same for every path. Decision.Own is not compared.
// Errors: Exhausted.
func Diff(a, b *policy.Policy) ([]Difference, error) {
	known := map[group]bool{}
	var out []Difference
	over := func(a, b policy.State) bool { return a.Ends() && b.Ends() }
	err := walk(a, b, over, func(path func() vpath.Path, da, db policy.Decision) verdict {
		next := enter
		if da.ForDir() == policy.None && db.ForDir() == policy.None {
			next = skip // all below is none
		}
		d := Difference{A: da, B: db, b: b}
		switch {
		case da.Permission != db.Permission:
		case da.ForDir() != db.ForDir():
			d.Dir = true
		case da.Transform != db.Transform:
			d.Shown = true
		case kept(da, a) != kept(db, b):
			d.Kept = true
		default:
			return next
		}
		if g := groupOf(d); !known[g] {
			known[g] = true
			d.Path = path()
			out = append(out, d)
		}
		return next
	})
	return out, err
}
