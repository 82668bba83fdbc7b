package prove

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Difference is a kind of path for which two policies decide differently, by the same rules.
type Difference struct {
	Path vpath.Path // the shortest such path
	Dir  bool       // only directories differ
	Own  bool       // only Decision.Own differs
	A, B policy.Decision
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
	if d.Own {
		return d.B.Own
	}
	return d.To() > d.From()
}

// Diff returns where the policies differ: for every path that they decide differently, a difference
// with the same permissions. Differences by several rules are listed each, but not if the rules are
// none rules of equal rank. Those with the shortest paths are first. No difference means that the
// policies decide alike for every path. Errors: Exhausted.
func Diff(a, b *policy.Policy) ([]Difference, error) {
	type kind struct {
		from, to policy.Permission
		dir, own bool
		a, b     int
	}
	known := map[kind]bool{}
	var out []Difference
	over := func(a, b policy.State) bool { return a.Ends() && b.Ends() }
	err := walk(a, b, over, func(path func() vpath.Path, da, db policy.Decision) verdict {
		d, next := Difference{A: da, B: db}, enter
		if da.ForDir() == policy.None && db.ForDir() == policy.None {
			next = skip // all below is none
		}
		switch {
		case da.Permission != db.Permission:
		case da.ForDir() != db.ForDir():
			d.Dir = true
		case da.Own != db.Own:
			d.Own = true
		default:
			return next
		}
		k := kind{d.From(), d.To(), d.Dir, d.Own, da.Rule, db.Rule}
		if !known[k] {
			known[k] = true
			d.Path = path()
			out = append(out, d)
		}
		return next
	})
	return out, err
}
