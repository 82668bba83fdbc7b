package fusefs_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// TestUnlinkedFilesLiveOn: of the source and of the delta, for reading and for
// writing, while the descriptors of others push theirs out of the cache.
func TestUnlinkedFilesLiveOn(t *testing.T) {
	v := mountSource(t, t.TempDir(), limitDescriptors(1), "**=write")
	tree{"source": "of the source", "other": "x"}.make(t, v.source)
	v.write("delta", "of the delta")
	for _, name := range []string{"source", "delta"} {
		t.Run(name, func(t *testing.T) {
			f, err := os.OpenFile(v.path(name), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := os.Remove(v.path(name)); err != nil {
				t.Fatal(err)
			}
			v.read("other")
			b := make([]byte, 64)
			n, _ := f.ReadAt(b, 0)
			if got := string(b[:n]); got != "of the "+name {
				t.Errorf("read %q", got)
			}
			if _, err := f.WriteAt([]byte("OF"), 0); err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(6); err != nil {
				t.Fatal(err)
			}
			v.read("other")
			n, _ = f.ReadAt(b, 0)
			if got := string(b[:n]); got != "OF the" {
				t.Errorf("read %q after writing", got)
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Nlink != 0 {
				t.Errorf("fstat: nlink %d, %v", st.Nlink, err)
			}
			if _, err := os.Lstat(v.path(name)); !os.IsNotExist(err) {
				t.Errorf("the name is back: %v", err)
			}
		})
	}
	if b, err := os.ReadFile(v.source + "/source"); err != nil || string(b) != "of the source" {
		t.Errorf("the source holds %q, %v", b, err)
	}
}

func TestForgottenOrphansAreGone(t *testing.T) {
	v := mount(t, nil, "**=write")
	v.write("f", strings.Repeat("x", 1<<20))
	f, err := os.Open(v.path("f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(v.path("f")); err != nil {
		t.Fatal(err)
	}
	orphans := v.dir + "/../layers/orphan"
	if entries, err := os.ReadDir(orphans); err != nil || len(entries) != 1 {
		t.Errorf("orphans while it is open: %v, %v", entries, err)
	}
	f.Close()
	testenv.Eventually(t, "the orphan is removed", func() bool {
		entries, err := os.ReadDir(orphans)
		return err == nil && len(entries) == 0
	})
}

func TestAFileReplacedByRenameLivesOn(t *testing.T) {
	v := mount(t, tree{"old": "old content", "new": "new content"}, "**=write")
	f, err := os.Open(v.path("old"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Rename(v.path("new"), v.path("old")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if n, _ := f.ReadAt(b, 0); string(b[:n]) != "old content" {
		t.Errorf("the replaced file reads %q", b[:n])
	}
	if got := v.read("old"); got != "new content" {
		t.Errorf("the name reads %q", got)
	}
}

func TestWorkingDirectoryThatWasRemoved(t *testing.T) {
	v := mount(t, tree{"d/f": "1"}, "**=write")
	if got := v.guest("cd d; rm f; rmdir ../d; ls; stat -c %h .; touch x; cd ..; ls"); got !=
		"0\ntouch: cannot touch 'x': No such file or directory" {
		t.Errorf("printed %q", got)
	}
}
