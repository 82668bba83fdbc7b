package attack_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// Names with a special meaning for the store, a kernel or a library are ordinary names
// inside: they hide nothing, open nothing and are kept.
func TestNamesThatImitateInternals(t *testing.T) {
	eachHiding(t, namesThatImitateInternals)
}

func namesThatImitateInternals(t *testing.T, h hiding) {
	s := harness.New(t, binary, map[string]string{
		"victim": "victim", "plain": "plain", "dir/kept": "kept", "dir/sub/kept": "kept", "secret.pem": "secret",
	})
	s.Write(".wh.ours", "a file of the source")
	untouched := s.Untouched()
	flags := append(h.flags("*.pem"), "--preset", "full-access")
	passes(t, s, forgeNames, []string{"make"}, flags...)
	untouched()
	passes(t, s, forgeNames, []string{"look"}) // by another supervisor, from the disk
	status := agentfense(t, s, "diff", s.Name, "--name-status")
	if strings.Contains(status, "D\t") || strings.Count(status, "\n") != len(forgedNames) {
		t.Errorf("diff:\n%s", status)
	}
	agentfense(t, s, "apply", s.Name)
	for _, name := range append([]string{"victim", "dir/kept", "dir/sub/kept", "secret.pem", ".wh.ours"}, forgedNames...) {
		s.Read(name)
	}
}

// forgedNames are made inside as files: whiteouts and opaque marks of OCI and
// aufs layers, the delta's own forms for long names, overlayfs' and our
// directories, control files of BranchFS and go-fuse's probe.
var forgedNames = []string{
	".wh.victim", ".wh.dir", "dir/.wh.kept", "dir/.wh..wh..opq", "dir/sub/.wh..opq", ".wh..wh..opq", ".wh..wh.plnk",
	".wh..wh.#0123456789abcdef", ".wh.", ".wh..wh.", ".wh..wh..wh.victim", ".wh.secret.pem ", ".wh..wh.@victim", ".wh..wh.!victim", ".wh..wh.@secret.pem ", "top", "frozen", "work", "orphan", "base.log",
	".branchfs_ctl", "@branch", ".wh." + strings.Repeat("n", 251), strings.Repeat(".wh.", 63),
}

var forgeNames = program("forge names", func(in *inside, args []string) {
	for _, name := range forgedNames {
		if args[0] == "make" {
			in.works("make "+name, os.WriteFile(name, []byte(name), 0o644))
		}
		data, err := os.ReadFile(name)
		in.works("read", err)
		in.is("content of "+name, string(data), name)
	}
	for _, name := range []string{"victim", "dir/kept", "dir/sub/kept", ".wh.ours"} {
		in.errno("read "+name, opened(name, unix.O_RDONLY), 0)
	}
	for _, name := range []string{".wh.absent", "dir/.wh.absent"} {
		in.errno("stat "+name, unix.Lstat(name, new(unix.Stat_t)), unix.ENOENT)
	}
	reservedByTheLibrary(in)
	// overlayfs keeps its marks in attributes and character devices 0:0.
	for _, attribute := range []string{"trusted.overlay.opaque", "user.overlay.opaque", "trusted.overlay.redirect"} {
		err := unix.Setxattr("dir", attribute, []byte("y"), 0)
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EPERM) {
			in.fail("set %s: %v", attribute, err)
		}
	}
	in.errno("whiteout of overlayfs", unix.Mknod("device", unix.S_IFCHR, 0), unix.EPERM)
})

// reservedByTheLibrary tries the one name that go-fuse would answer for by
// itself. It is absent, and cannot be made.
func reservedByTheLibrary(in *inside) {
	const name = ".go-fuse-epoll-hack"
	entries, err := os.ReadDir(".")
	in.works("list", err)
	for _, e := range entries {
		in.is("listed as the library's", e.Name() == name, false)
	}
	for call, ask := range asking {
		in.errno(call+" the library's name", ask(name), unix.ENOENT)
	}
	for call, put := range making {
		in.errno(call+" at the library's name", put(name), unix.EACCES)
	}
	in.works("remove what leads to it", os.Remove("dir/through"))
	in.works("elsewhere it is a name", os.WriteFile("dir/"+name, []byte(name), 0o644))
	in.works("and can be removed", os.Remove("dir/"+name))
}

// No view shows the state directory, also if it is below the source: it is absent and
// cannot be created, whatever the policy.
func TestTheStoreIsOutOfReach(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"x": "x"})
	s.Home = filepath.Join(s.Source, "state")
	if err := os.Mkdir(s.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	passes(t, s, reachForStore, []string{s.Home}, "--preset", "full-access", "--write", "state/**")
	if r := s.Run("true", "--preset", "full-access", "--mount", s.Home+":/mnt"); r.Code == 0 {
		t.Error("the state could be mounted")
	}
	agentfense(t, s, "apply", s.Name)
	if _, err := os.Stat(filepath.Join(s.Home, "sandboxes", s.Name)); err != nil {
		t.Error(err)
	}
}

var reachForStore = program("reach for the store", func(in *inside, args []string) {
	home := args[0]
	for _, path := range []string{"state", "state/sandboxes", "state/audit", home, home + "/sandboxes/attack/layers/top", "/proc/self/cwd/state"} {
		in.errno("stat "+path, unix.Lstat(path, new(unix.Stat_t)), unix.ENOENT)
		in.errno("open "+path, opened(path, unix.O_RDONLY), unix.ENOENT)
	}
	in.errno("mkdir", unix.Mkdir("state", 0o755), unix.EACCES)
	in.errno("rename over", unix.Rename("x", "state"), unix.EACCES)
	in.errno("symlink", unix.Symlink("x", "state"), unix.EACCES)
	in.works("link", unix.Symlink("state", "to state"))
	in.errno("through a link", opened("to state/audit", unix.O_RDONLY), unix.ENOENT)
	in.errno("rename to", unix.Rename("state", "mine"), unix.ENOENT)
	names, err := os.ReadDir(".")
	in.works("list", err)
	in.is("entries", len(names), 2)
})
