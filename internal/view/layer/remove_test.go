package layer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestHiddenChildrenDoNotKeepADirectory(t *testing.T) {
	b := newBench(t, map[string]string{"dir/secret": "s", "dir/plain": "p"})
	visible := func(name string) bool { return name != "secret" }
	wantErr(t, "rmdir with a visible child", b.Rmdir("/dir", visible), unix.ENOTEMPTY)
	b.unlink("/dir/plain")
	must(t, b.Rmdir("/dir", visible))
	_, err := b.Lookup("/dir")
	wantErr(t, "lookup of the removed directory", err, unix.ENOENT)

	b.mkdir("/dir")
	if got := b.names("/dir"); len(got) != 0 {
		t.Errorf("the directory made again shows %q", got)
	}
	// What the sandbox removed has a base; the hidden entry has none.
	if got, want := b.changes(), []string{"d /dir/plain", "d /dir/secret ?"}; !slices.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
	if content, err := os.ReadFile(b.src("dir/secret")); err != nil || string(content) != "s" {
		t.Errorf("the source's hidden file: %q, %v", content, err)
	}
}

func TestRemovedDirectoriesLeaveOneWhiteout(t *testing.T) {
	b := newBench(t, map[string]string{"dir/a": "", "dir/sub/b": ""})
	b.removeAll("/dir")
	entries, err := os.ReadDir(b.top(""))
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != ".wh.dir" {
		t.Errorf("the delta holds %v, want one whiteout", entries)
	}
	want := []string{"d /dir", "d /dir/a", "d /dir/sub", "d /dir/sub/b"}
	if got := b.changes(); !slices.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
}

func TestOrphansLiveUntilForgotten(t *testing.T) {
	b := newBench(t, map[string]string{"source": "old", "replaced": "old"})
	b.write("/delta", "old")
	before := map[string]Info{}
	orphans := map[string]*Orphan{}
	for _, p := range []string{"/source", "/delta"} {
		before[p] = b.lookup(p)
		o, err := b.Unlink(vpath.Path(p), true)
		must(t, err)
		orphans[p] = o
	}
	b.write("/new", "new")
	before["/replaced"] = b.lookup("/replaced")
	o, err := b.Rename("/new", "/replaced", RenameOptions{KeepReplaced: true})
	must(t, err)
	orphans["/replaced"] = o

	for p, o := range orphans {
		i, err := o.Info()
		must(t, err)
		if i.Nlink != 0 || i.Ino != before[p].Ino || i.Size != 3 {
			t.Errorf("orphan of %s shows %+v", p, i)
		}
		i, err = o.SetAttr(SetAttr{Size: new(int64(1)), Mode: new(uint32(0o640))})
		must(t, err)
		if i.Size != 1 || i.Ino != before[p].Ino || i.Mode != unix.S_IFREG|0o640 {
			t.Errorf("changed orphan of %s shows %+v", p, i)
		}
		f, i, err := o.Open(false)
		must(t, err)
		if got, err := readFile(f, i.Size); err != nil || got != "o" {
			t.Errorf("orphan of %s reads %q, %v", p, got, err)
		}
		f.Close()
		o.Forget()
		o.Forget()
		_, err = o.Info()
		wantErr(t, "a forgotten orphan", err, unix.ENOENT)
	}
	if content, err := os.ReadFile(b.src("source")); err != nil || string(content) != "old" {
		t.Errorf("the source has %q, %v", content, err)
	}
	left, err := os.ReadDir(filepath.Join(b.dir, "orphan"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left among the orphans: %v", left)
	}
}

func TestOrphanedLinksKeepTheirTarget(t *testing.T) {
	b := newBench(t, nil)
	must(t, os.Symlink("target", b.src("link")))
	_, err := b.Symlink("mine", "/mine")
	must(t, err)
	for p, want := range map[vpath.Path]string{"/link": "target", "/mine": "mine"} {
		o, err := b.Unlink(p, true)
		must(t, err)
		if got, err := o.Readlink(); err != nil || got != want {
			t.Errorf("orphaned link reads %q, %v, want %q", got, err, want)
		}
		o.Forget()
	}
}

func TestFilesWithoutANameCanGetOne(t *testing.T) {
	b := newBench(t, map[string]string{"taken": ""})
	o, err := b.CreateOrphan(0o4640)
	must(t, err)
	f, i, err := o.Open(true)
	must(t, err)
	defer f.Close()
	if i.Nlink != 0 || i.Mode != unix.S_IFREG|0o640 {
		t.Errorf("the nameless file shows %+v", i)
	}
	_, err = f.WriteAt([]byte("hello"), 0)
	must(t, err)
	_, err = b.LinkOrphan(o, "/taken")
	wantErr(t, "link over a name", err, unix.EEXIST)
	named, err := b.LinkOrphan(o, "/named")
	must(t, err)
	if named.Ino != i.Ino || named.Nlink != 1 {
		t.Errorf("named it shows %+v, was %d", named, i.Ino)
	}
	o.Forget()
	if got := b.read("/named"); got != "hello" {
		t.Errorf("named it reads %q", got)
	}
	_, err = b.LinkOrphan(o, "/again")
	wantErr(t, "link a spent orphan", err, unix.ENOENT)
}

func TestOpenSweepsWhatACrashLeft(t *testing.T) {
	b := newBench(t, map[string]string{"a": ""})
	b.write("/file", "x")
	_, err := b.Unlink("/file", true)
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(b.dir, "work", "7", "sub", "deep"), 0o500))
	must(t, os.WriteFile(filepath.Join(b.dir, "work", "8"), nil, 0))
	b.reopen()
	for _, dir := range []string{"work", "orphan"} {
		left, err := os.ReadDir(filepath.Join(b.dir, dir))
		must(t, err)
		if len(left) > 0 {
			t.Errorf("%s holds %v", dir, left)
		}
	}
}
