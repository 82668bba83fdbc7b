package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// A client that may write below a root of mounts puts symbolic links there, also in the place of
// the directory of a mount. Nothing outside of the root is shown: not to new sandboxes, not to one
// that has the mount, running or not, and not from outside.
func TestLinksBelowARootLeadNoMountOut(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	for path, content := range map[string]string{
		root + "/shared/in/secret": "inside\n", outside + "/secret": "OUTSIDE\n",
		dir + "/server.yaml": "mounts: {roots: [{path: " + root + ", writable: true}]}\n",
	} {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newServed(t)
	s.flags = []string{"--config", dir + "/server.yaml"}
	s.serve()
	agent := s.token("read,exec,manage,apply")
	create := []string{"create", "box", "--codebase", s.codebase, "--preset", "full-access", "--mount", root + "/shared:/mnt/shared:cow", "--mount", root + "/shared/in:/mnt/in"}
	s.must(agent, create...)
	s.must(agent, "exec", "box", "--", "sh", "-c", "cd /mnt/shared && rm -r in && ln -s "+outside+" in && ln -s ../../outside up && ln -s in again && ln -s / all")
	if _, err := s.try(agent, "apply", "box", "--in", "shared", "--latest"); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(root + "/shared/in"); err != nil || to != outside {
		t.Fatalf("the link is not there: %q, %v", to, err)
	}

	for _, source := range []string{"in", "up", "again", "all", "all" + outside, "all/etc"} {
		out, err := s.try(agent, "create", "other", "--codebase", s.codebase, "--mount", root+"/shared/"+source+":/mnt/x")
		if err == nil || !strings.Contains(out, "a symbolic link leads out of") {
			t.Errorf("a mount of %s: %v\n%s", source, err, out)
		}
	}
	see := func(when string) {
		t.Helper()
		for _, attempt := range [][]string{
			{"exec", "box", "--", "cat", "/mnt/in/secret"},
			{"exec", "box", "--", "cat", "/mnt/shared/in/secret"},
			{"files", "cat", "box", "in:/secret"},
			{"files", "ls", "box", "in:/"},
			{"files", "cat", "box", "shared:/in/secret"},
			{"diff", "box", "--in", "shared"},
		} {
			if out, _ := s.try(agent, attempt...); strings.Contains(out, "OUTSIDE") {
				t.Errorf("%s, agentfense %q: %s", when, attempt, out)
			}
		}
	}
	see("stopped")
	if out, err := s.try(agent, "run", "--name", "box", "--detach"); err == nil {
		t.Errorf("the sandbox starts with a link in the place of its mount: %s", out)
	}
	if err = os.Remove(root + "/shared/in"); err == nil {
		err = os.MkdirAll(root+"/shared/in", 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.must(agent, "run", "--name", "box", "--detach")
	if err := unix.Renameat2(unix.AT_FDCWD, root+"/shared/in", unix.AT_FDCWD, root+"/shared/again", unix.RENAME_EXCHANGE); err != nil { // again leads to itself now
		t.Fatal(err)
	}
	see("running")
	if content, err := os.ReadFile(outside + "/secret"); err != nil || string(content) != "OUTSIDE\n" {
		t.Errorf("outside: %q, %v", content, err)
	}
}
