package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A sandbox cannot reach its snapshots, or the layers that it shares with a fork, and cannot name
// one. What a fork writes shows in no other sandbox. A fork hides what its policy hides, also if
// the other sandbox has changed it. The disk limit counts what is shared.
func TestSnapshotsAreOutOfReach(t *testing.T) {
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary user": {harness.Ordinary}} {
		t.Run(name, func(t *testing.T) { attackSnapshots(t, options) })
	}
}

func attackSnapshots(t *testing.T, options []harness.Option) {
	s := harness.New(t, binary, map[string]string{"f": "source\n", "secret": "source\n", "dir/x": "x\n"}, options...)
	must := func(args ...string) harness.Result {
		t.Helper()
		r := s.Agentfense(args...)
		if r.Code != 0 {
			t.Fatalf("%q: %d, %s", args, r.Code, r.Stderr)
		}
		return r
	}
	s.Run("echo snapshot > f; echo changed > secret; ln f f2; mkdir -m 0 closed; cp f dir/new", "--preset", "full-access", "--disk", "8M")
	must("snapshot", s.Name, "kept")
	must("fork", s.Name, "fork", "--hide", "secret")

	// Names of ours, links and paths of the host lead to no layer.
	escape := `ln -s ly_0123456789abcdef below; echo x > base.log; mkdir -p top work orphan frozen; ln -s ` + s.Home + `/frozen out
		ls -d ` + s.Home + ` ` + s.Home + `/frozen out/ 2>/dev/null; find / -xdev -name 'ly_*' -not -path '/proc/*' -type d 2>/dev/null
		grep -l ly_ /proc/self/mountinfo /proc/1/mountinfo 2>/dev/null; true`
	if r := must("exec", "fork", "--", "sh", "-c", escape); r.Stdout != "" {
		t.Errorf("inside shows %q of the layers", r.Stdout)
	}
	// Every way to write a shared file leaves the other sandbox and the snapshot as they are.
	must("exec", "fork", "--", "sh", "-c", `exec 3<>f; echo X >&3; echo more >> f2; chmod 777 dir; touch -d @1 dir/new; : > dir/x; mv dir gone; rm -r gone; chmod 700 closed; rmdir closed`)
	if r := must("exec", s.Name, "--", "sh", "-c", "cat f f2 dir/new dir/x; stat -c %a closed"); r.Stdout != "snapshot\nsnapshot\nsnapshot\nx\n0\n" {
		t.Errorf("the sandbox shows %q after its fork has written", r.Stdout)
	}
	must("exec", s.Name, "--", "sh", "-c", "echo later > f")
	if r := must("diff", s.Name+"@kept", s.Name, "--name-status"); r.Stdout != "M\tf\nM\tf2\n" {
		t.Errorf("the snapshot differs from the sandbox by %q", r.Stdout)
	}
	if r := s.Agentfense("exec", "fork", "--", "cat", "secret"); r.Code == 0 || !strings.Contains(r.Stderr, "No such file") {
		t.Errorf("the fork reads what its policy hides: %q %s", r.Stdout, r.Stderr)
	}
	// The quota counts what was there before the fork, which has its own log, too.
	if r := s.Agentfense("exec", s.Name, "--", "sh", "-c", "head -c 5000000 /dev/urandom > big"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	must("fork", s.Name, "full")
	if r := s.Agentfense("exec", "full", "--", "sh", "-c", "head -c 5000000 /dev/urandom > more"); r.Code == 0 {
		t.Error("a fork writes 10 MB beside a limit of 8 MB")
	}
	for _, sandbox := range []string{"fork", "full"} {
		must("rm", "--force", sandbox)
	}
	wantPrivate(t, filepath.Join(s.Home, "frozen"))
}

// wantPrivate fails if others may read a directory or one in it.
func wantPrivate(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%s has %v, %v", dir, entries, err)
	}
	for _, path := range []string{dir, filepath.Join(dir, entries[0].Name())} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
