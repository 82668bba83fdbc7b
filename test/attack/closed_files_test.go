package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// TestClosedFilesAreReviewed: modes that close files and directories to
// everybody, their owner too, keep nothing from review, apply, discard and
// removal, and open nothing in the source.
func TestClosedFilesAreReviewed(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "old\n", "locked/b": "old\n"}, who...)
		r := s.Run(`echo new >a && echo x >file && mkdir dir shut && echo y >dir/f && echo z >shut/g && ln -s t shut/l &&
			chmod 0 a file shut && chmod 0311 dir`, "--preset", "full-access")
		if r.Code != 0 || !strings.Contains(r.Stderr, "A shut/g") {
			t.Fatalf("run: exit code %d, want 0 and a summary\n%s", r.Code, r.Stderr)
		}
		const changed = "M\ta\nA\tdir/f\nA\tfile\nA\tshut/g\nA\tshut/l\n"
		if got := agentfense(t, s, "diff", s.Name, "--name-status"); got != changed {
			t.Errorf("diff: got %q, want %q", got, changed)
		}
		if got := agentfense(t, s, "files", "cat", s.Name, "file", "shut/g"); got != "x\nz\n" {
			t.Errorf("files cat: got %q", got)
		}
		agentfense(t, s, "fork", s.Name, "fork")
		agentfense(t, s, "exec", "fork", "--", "sh", "-c", "echo y >made")
		if got := agentfense(t, s, "diff", s.Name, "fork", "--name-status"); got != "A\tmade\n" {
			t.Errorf("diff with the fork: got %q", got)
		}
		agentfense(t, s, "rm", "--force", "fork")
		agentfense(t, s, "discard", s.Name, "shut/l")
		agentfense(t, s, "apply", s.Name)
		for path, want := range map[string]uint32{"a": 0, "file": 0, "dir": 0o311, "shut": 0} {
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(s.Source, path), &st); err != nil || st.Mode&0o777 != want {
				t.Errorf("%s: got mode %o, %v, want %o", path, st.Mode&0o777, err, want)
			}
		}
		if err := os.Chmod(filepath.Join(s.Source, "shut"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := s.Read("shut/g"); got != "z\n" {
			t.Errorf("shut/g: got %q", got)
		}
		if r := s.Run("mkdir d && echo x >d/f && chmod 0 d"); r.Code != 0 {
			t.Fatalf("run: exit code %d\n%s", r.Code, r.Stderr)
		}
		agentfense(t, s, "discard", s.Name)
		if r := s.Run("mkdir d && echo x >d/f && chmod 0 d"); r.Code != 0 {
			t.Fatalf("run: exit code %d\n%s", r.Code, r.Stderr)
		}
		if r := s.Agentfense("rm", s.Name); r.Code != 1 || !strings.Contains(r.Stderr, "1 change not applied") {
			t.Errorf("rm of closed changes: exit code %d, stderr %q", r.Code, r.Stderr)
		}
		agentfense(t, s, "rm", "--force", s.Name)
	})
}

// TestADeepClosedTreeIsRemoved: directories closed to their owner, deeper than
// anything is removed by recursion, keep nobody from getting rid of a sandbox.
func TestADeepClosedTreeIsRemoved(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		prints(t, s, `deep=$(printf 'd/%.0s' $(seq 250)) && mkdir -p "$deep" && find d -depth -exec chmod 0 {} + && echo made`, "made\n", "--preset", "full-access")
		agentfense(t, s, "rm", "--force", s.Name)
		left, err := os.ReadDir(filepath.Join(s.Home, "sandboxes"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// TestClosedFilesOpenNothingInTheSource: the rights with which an ordinary
// user's apply gets at closed files of the delta do not reach the source.
func TestClosedFilesOpenNothingInTheSource(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"locked/b": "old\n"}, harness.Ordinary)
	if r := s.Run("echo new >locked/b && echo x >closed && chmod 0 closed", "--preset", "full-access"); r.Code != 0 {
		t.Fatalf("run: exit code %d\n%s", r.Code, r.Stderr)
	}
	if err := os.Chmod(filepath.Join(s.Source, "locked"), 0o555); err != nil {
		t.Fatal(err)
	}
	r := s.Agentfense("apply", s.Name)
	if r.Code == 0 || !strings.Contains(r.Stdout, "failed\tM\tlocked/b\tpermission denied") {
		t.Errorf("apply into a directory without w: exit code %d, want a failure\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if got := s.Read("locked/b"); got != "old\n" {
		t.Errorf("locked/b: got %q", got)
	}
	if err := os.Chmod(filepath.Join(s.Source, "locked"), 0o755); err != nil {
		t.Fatal(err)
	}
	agentfense(t, s, "apply", s.Name)
	if got := s.Read("locked/b"); got != "new\n" {
		t.Errorf("locked/b, then: got %q", got)
	}
}

// TestAnACLOutlivesClosedFiles: where an ordinary user's apply cannot carry an
// ACL over, because it has to get at closed files, it says so and applies the
// file afterwards.
func TestAnACLOutlivesClosedFiles(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"shared": "old\n"}, harness.Ordinary)
	path := filepath.Join(s.Source, "shared")
	const attribute = "system.posix_acl_access"
	// acl(5): version 2, then tag, permissions and id of each entry; 2 is ACL_USER.
	acl := []byte{2, 0, 0, 0}
	for _, e := range []struct{ tag, perm, id byte }{{1, 6, 0xff}, {2, 6, 7}, {4, 4, 0xff}, {0x10, 6, 0xff}, {0x20, 4, 0xff}} {
		rest := byte(0)
		if e.id == 0xff {
			rest = 0xff
		}
		acl = append(acl, e.tag, 0, e.perm, 0, e.id, rest, rest, rest)
	}
	if err := unix.Setxattr(path, attribute, acl, 0); err != nil {
		t.Skipf("no ACLs here: %v", err)
	}
	if r := s.Run("echo new >shared && echo x >closed && chmod 0 closed", "--preset", "full-access"); r.Code != 0 {
		t.Fatalf("run: exit code %d\n%s", r.Code, r.Stderr)
	}
	if r := s.Agentfense("apply", s.Name); r.Code == 0 || !strings.Contains(r.Stdout, "access control list names other users") {
		t.Errorf("apply: exit code %d, want a failure that says why\n%s", r.Code, r.Stdout)
	}
	agentfense(t, s, "apply", s.Name)
	got := make([]byte, 64)
	n, err := unix.Getxattr(path, attribute, got)
	if err != nil || string(got[:n]) != string(acl) || s.Read("shared") != "new\n" {
		t.Errorf("shared: ACL %x, %v, want %x; content %q", got[:max(n, 0)], err, acl, s.Read("shared"))
	}
}
