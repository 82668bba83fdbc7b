package policy_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// TestDecisionsDifferOnlyWhereLocksHaveChanged compares all that a directory's attributes and
// entries depend on, under two random sets of locks.
func TestDecisionsDifferOnlyWhereLocksHaveChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compile(t, genRules().Draw(t, "rules"))
		holders := []*policy.Policy{nil, compile(t, genRules().Draw(t, "holder")), compile(t, genRules().Draw(t, "other holder"))}
		genLock := rapid.Custom(func(t *rapid.T) policy.Lock {
			return policy.Lock{
				Path: genPath(3).Draw(t, "lock"), Reason: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "reason"),
				Holder: rapid.SampledFrom(holders).Draw(t, "of"),
			}
		})
		kept := rapid.SliceOfN(genLock, 0, 3).Draw(t, "kept")
		old := p.WithLocks(append(rapid.SliceOfN(genLock, 0, 2).Draw(t, "ended"), kept...))
		now := p.WithLocks(append(slices.Clone(kept), rapid.SliceOfN(genLock, 0, 2).Draw(t, "begun")...))
		changed, ok := policy.ChangedLocks(old, now)
		if !ok {
			t.Fatal("policies with the same rules may differ in their rules")
		}
		path := genPath(4).Draw(t, "path")
		covered := slices.ContainsFunc(changed.Paths(), func(c vpath.Path) bool { return path.Within(c) })
		if got := changed.Covers(path); got != covered {
			t.Fatalf("Covers(%s) = %t, and Paths() are %v", path, got, changed.Paths())
		}
		own := path
		if !path.IsRoot() {
			own = path.Dir().Child(vpath.OwnName(path.Base()))
		}
		if changed.Covers(own) != covered {
			t.Fatalf("an own entry at %s is not covered as another one", path)
		}
		if covered {
			return
		}
		for _, at := range []vpath.Path{path, own} {
			if was, is := old.Decide(at), now.Decide(at); was != is {
				t.Fatalf("Decide(%s) = %+v, before %+v", at, is, was)
			}
		}
		if was, is := old.At(path).Decision(), now.At(path).Decision(); was != is {
			t.Fatalf("At(%s).Decision() = %+v, before %+v", path, is, was)
		}
		if old.ChildWritable(path) != now.ChildWritable(path) || old.At(path).ChildWritable() != now.At(path).ChildWritable() || old.MayMkdir(path) != now.MayMkdir(path) {
			t.Fatalf("what may be made in %s differs", path)
		}
	})
}

func TestChangedLocks(t *testing.T) {
	p := compile(t, rules(t, "**=write"))
	holder := compile(t, rules(t, "**=write", "d/=read"))
	lock := func(path vpath.Path, of *policy.Policy) policy.Lock {
		return policy.Lock{Path: path, Reason: "locked", Holder: of}
	}
	for _, tt := range []struct {
		name     string
		old, now []policy.Lock
		want     []vpath.Path
	}{
		{"nothing", nil, nil, nil},
		{"the same locks", []policy.Lock{lock("/d", holder)}, []policy.Lock{lock("/d", holder)}, nil},
		{"a lock begins", []policy.Lock{lock("/d", nil)}, []policy.Lock{lock("/d", nil), lock("/e/f", nil)}, []vpath.Path{"/e/f"}},
		{"a lock ends", []policy.Lock{lock("/d", nil)}, nil, []vpath.Path{"/d"}},
		{"its holder has other rules", []policy.Lock{lock("/d", nil)}, []policy.Lock{lock("/d", holder)}, []vpath.Path{"/d"}},
		{"one below another", nil, []policy.Lock{lock("/d/x", nil), lock("/d", nil)}, []vpath.Path{"/d"}},
		{"all", nil, []policy.Lock{lock("/", nil)}, []vpath.Path{"/"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed, ok := policy.ChangedLocks(p.WithLocks(tt.old), p.WithLocks(tt.now))
			if got := changed.Paths(); !ok || !slices.Equal(got, tt.want) {
				t.Errorf("Paths() = %v, %t, want %v", got, ok, tt.want)
			}
		})
	}
	if _, ok := policy.ChangedLocks(p, holder); ok {
		t.Error("policies with other rules differ in their locks only")
	}
}
