package badinput_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A merge that is killed at any step leaves the sandbox as it was or with the whole merge. It can
// be repeated, and nothing stays when all is removed.
func TestAKilledMergeIsWholeOrNothing(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "1\n2\n3\n4\n5\n", "g": "source\n", "h": "source\n"})
	wantCode(t, s.Run("echo early > e", "--preset", "full-access"), 0)
	const before, after = "1\n2\n3\n4\nV\nsource\nsource\nearly\n", "I\n2\n3\n4\nV\nfork\nearly\nnew\n"
	for _, point := range []string{
		"merge: frozen", "freeze: prepared", "freeze: exchanged", "merge: base frozen", "merge: cleared", "merge: built",
		"snapshot: listed", "next head: durable", "next head: put", "merge: put",
	} {
		wantCode(t, s.Agentfense("fork", s.Name, "fork", "into"), 0)
		wantCode(t, s.Agentfense("exec", "fork", "--", "sh", "-c", "sed -i s/1/I/ f; echo fork > g; rm h; mkdir d; echo new > d/n"), 0)
		wantCode(t, s.Agentfense("exec", "into", "--", "sh", "-c", "sed -i s/5/V/ f"), 0)
		s.KilledAt(point, "merge", "fork", "--into", "into")
		show := func() string {
			return s.Agentfense("exec", "into", "--", "sh", "-c", "cat f g; test ! -e h || cat h; cat e; test ! -e d/n || cat d/n").Stdout
		}
		want := before
		if strings.HasSuffix(point, ": put") {
			want = after
		}
		if got := show(); got != want {
			t.Errorf("killed at %q the sandbox shows %q, want %q", point, got, want)
		}
		wantCode(t, s.Agentfense("merge", "fork", "--into", "into"), 0)
		if got := show(); got != after {
			t.Errorf("merged after a kill at %q it shows %q", point, got)
		}
		wantCode(t, s.Agentfense("restore", "into", "@{1}"), 0)
		if got := show(); got != before {
			t.Errorf("restored after a kill at %q it shows %q", point, got)
		}
		wantCode(t, s.Agentfense("rm", "--force", "fork", "into"), 0)
	}
	wantCode(t, s.Agentfense("rm", "--force", s.Name), 0)
	if left, err := os.ReadDir(filepath.Join(s.Home, "frozen")); err != nil || len(left) > 0 {
		t.Errorf("layers are left: %v, %v", left, err)
	}
}

// A merge for which the disk, or the limit of the sandbox, has no room changes nothing and says
// why.
func TestAMergeWithoutRoomChangesNothing(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "source\n"})
	ownMounts(t)
	mountTmpfs(t, s.Home, "size=60m,nr_inodes=3000,mode=0700") // it has a program of 20 MB
	d := &disk{t: t, dir: s.Home}
	wantCode(t, named(s, "fork").Run("head -c 6000000 /dev/zero | tr '\\0' x > big; echo fork > f", "--preset", "full-access"), 0)
	wantCode(t, named(s, "into").Run("echo mine > mine", "--preset", "full-access"), 0)
	wantCode(t, named(s, "small").Run("echo mine > mine", "--preset", "full-access", "--disk", "1M"), 0)
	wantCode(t, s.Agentfense("merge", "fork", "--into", "small"), 1, "sandbox small", "disk quota exceeded")
	d.fill()
	wantCode(t, s.Agentfense("merge", "fork", "--into", "into"), 1, "sandbox into", "no space left on device")
	for _, name := range []string{"into", "small"} {
		prints(t, s.Agentfense("diff", name, "--name-status"), "A\tmine\n")
	}
	fillers, err := filepath.Glob(filepath.Join(s.Home, "filler*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(fillers, filepath.Join(s.Home, "last1")) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, s.Agentfense("merge", "fork", "--into", "into"), 0)
	prints(t, s.Agentfense("diff", "into", "--name-status"), "A\tbig\nM\tf\nA\tmine\n")
}
