package scratch_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func open(t *testing.T, s scratch.Store, path scratch.Path, rules []policy.Rule) error {
	t.Helper()
	c, err := s.Open(path, rules, os.Getuid(), os.Getgid())
	if err == nil {
		c.Close()
	}
	return err
}

func TestContentsStay(t *testing.T) {
	s := scratch.StoreIn(t.TempDir())
	c, err := s.Open("/a", rules, os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fd, err := unix.Openat(int(c.Upper.Fd()), "made", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	again, err := s.Open("/a", rules, os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := unix.Faccessat(int(again.Upper.Fd()), "made", unix.F_OK, 0); err != nil {
		t.Errorf("what was made: %v", err)
	}
	if err := open(t, s, "/b", rules); err != nil {
		t.Error(err)
	}
	dirs, err := filepath.Glob(string(s) + "/*")
	if err != nil || len(dirs) != 2 {
		t.Fatalf("%q, %v", dirs, err)
	}
	for _, dir := range append(dirs, string(s)) {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has the mode %v, %v", dir, info.Mode(), err)
		}
	}
}

func TestRulesOfContentsStay(t *testing.T) {
	s := scratch.StoreIn(t.TempDir())
	hidden := append(slices.Clone(rules), policy.Rule{Pattern: "/a/x", Own: true})
	if err := s.CheckRules(hidden, []scratch.Path{"/a"}); err != nil {
		t.Errorf("before it has contents: %v", err)
	}
	if err := open(t, s, "/a", rules); err != nil {
		t.Fatal(err)
	}
	elsewhere := append(slices.Clone(rules), policy.Rule{Pattern: "/b/x", Own: true})
	elsewhere[0].Source = "policy.yaml:3"
	if err := open(t, s, "/a", elsewhere); err != nil {
		t.Errorf("rules of other paths: %v", err)
	}
	for _, changed := range [][]policy.Rule{hidden, rules[:1], {}} {
		if err := open(t, s, "/a", changed); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("%v: %v, want Precondition", changed, err)
		}
	}
	if err := open(t, s, "/a", rules); err != nil {
		t.Errorf("the rules as they were: %v", err)
	}
}

func TestContentsAreNoLink(t *testing.T) {
	s := scratch.StoreIn(t.TempDir())
	if err := open(t, s, "/a", rules); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(string(s) + "/*/upper")
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%q, %v", dirs, err)
	}
	if err := os.Remove(dirs[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), dirs[0]); err != nil {
		t.Fatal(err)
	}
	if err := open(t, s, "/a", rules); err == nil {
		t.Error("upper may be a link")
	}
}
