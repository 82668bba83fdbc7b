package policy_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// TestLocksOnlyNarrow compares each decision under random locks with that without: at a lock and
// below it write becomes read, and nothing else ever changes, whichever way a path is decided.
func TestLocksOnlyNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compile(t, genRules().Draw(t, "rules"))
		var locks []policy.Lock
		for _, path := range rapid.SliceOfN(genPath(3), 1, 3).Draw(t, "locks") {
			locks = append(locks, policy.Lock{Path: path, Reason: "locked"})
		}
		locked := p.WithLocks(locks)
		path := genPath(4).Draw(t, "path")
		want := p.Decide(path)
		under, above := false, false
		for _, l := range locks {
			under = under || path.Within(l.Path)
			above = above || l.Path.Within(path)
		}
		if under {
			want.Own = false
			if want.Permission == policy.Write {
				want.Permission, want.Rule, want.Reason, want.Locked = policy.Read, policy.NoRule, "locked", true
			}
		}
		if got := locked.Decide(path); got != want {
			t.Fatalf("Decide(%s) = %+v, want %+v", path, got, want)
		}
		if !path.IsRoot() {
			got := locked.At(path.Dir()).DecideChild(path.Base())
			if got != want {
				t.Fatalf("DecideChild(%s) = %+v, want %+v", path, got, want)
			}
			want.Own = false
			if got := locked.At(path.Dir()).Child(path.Base()).Decision(); got != want {
				t.Fatalf("Child(%s).Decision() = %+v, want %+v", path, got, want)
			}
			own := path.Dir().Child(vpath.OwnName(path.Base()))
			if under && (locked.Decide(own).Permission == policy.Write || locked.At(path.Dir()).DecideChild(vpath.OwnName(path.Base())).Permission == policy.Write) {
				t.Fatalf("an own entry at %s can be written", path)
			}
		}
		if ok, _ := locked.WritableBelow(path); ok && (under || above) {
			t.Fatalf("all below %s may be written, in spite of a lock", path)
		}
		if under && (locked.ChildWritable(path) || locked.At(path).ChildWritable() || locked.MayMkdir(path)) {
			t.Fatalf("something can be made in %s", path)
		}
		if p.Decide(path).Locked || locked.WithLocks(nil).Decide(path) != p.Decide(path) {
			t.Fatalf("a lock on %s stays", path)
		}
	})
}
