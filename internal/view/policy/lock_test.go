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

// TestALockCoversWhatItsHolderMayWrite compares each decision under the lock of a sandbox with what
// the two policies say, whichever way a path is decided.
func TestALockCoversWhatItsHolderMayWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compile(t, genRules().Draw(t, "rules"))
		holder := compile(t, genRules().Draw(t, "holder"))
		lock := policy.Lock{Path: genPath(2).Draw(t, "lock"), Reason: "locked", Holder: holder}
		locked := p.WithLocks([]policy.Lock{lock})
		path := genPath(4).Draw(t, "path")
		want := p.Decide(path)
		if of := holder.Decide(path); path.Within(lock.Path) && (of.Permission == policy.Write || of.Own) {
			want.Own = false
			if want.Permission == policy.Write {
				want.Permission, want.Rule, want.Reason, want.Locked = policy.Read, policy.NoRule, "locked", true
			}
		}
		if got := locked.Decide(path); got != want {
			t.Fatalf("Decide(%s) = %+v, want %+v", path, got, want)
		}
		if path.IsRoot() {
			return
		}
		dir := locked.At(path.Dir())
		if got := dir.DecideChild(path.Base()); got != want {
			t.Fatalf("DecideChild(%s) = %+v, want %+v", path, got, want)
		}
		if want.Permission == policy.Write && (!dir.ChildWritable() || !locked.ChildWritable(path.Dir())) {
			t.Fatalf("%s can be written, and nothing in its directory", path)
		}
		want.Own = false
		if got := dir.Child(path.Base()).Decision(); got != want {
			t.Fatalf("Child(%s).Decision() = %+v, want %+v", path, got, want)
		}
	})
}

func TestNoDirectoryIsMadeInALock(t *testing.T) {
	holder := compile(t, rules(t, "**=read", "mine/**=write", "way/to/mine/**=write"))
	p := compile(t, rules(t, "**=write")).WithLocks([]policy.Lock{{Path: "/", Reason: "locked", Holder: holder}})
	for path, want := range map[vpath.Path]bool{"/mine/d": false, "/way/to": false, "/free": true} {
		if got := p.MayMkdir(path); got != want {
			t.Errorf("MayMkdir(%s) = %t, want %t", path, got, want)
		}
	}
}
