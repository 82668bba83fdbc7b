package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestUnchangedFilesShowTheSourcesAttributes(t *testing.T) {
	b := newBench(t, map[string]string{"dir/file": "content"})
	for _, p := range []string{"/", "/dir", "/dir/file"} {
		host, err := os.Lstat(b.src(p))
		must(t, err)
		st := host.Sys().(*syscall.Stat_t)
		i := b.lookup(p)
		want := Info{
			Mode: st.Mode, Ino: st.Ino, Size: st.Size, Blocks: st.Blocks, Nlink: 1, UID: st.Uid, GID: st.Gid,
			Atime: unix.Timespec(st.Atim), Mtime: unix.Timespec(st.Mtim), Ctime: unix.Timespec(st.Ctim),
			Origin: Source, ID: i.ID,
		}
		if diff := cmp.Diff(want, i); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p, diff)
		}
		if i.ID.Ino != st.Ino || i.ID.Dev != st.Dev {
			t.Errorf("%s is backed by %+v, want inode %d", p, i.ID, st.Ino)
		}
	}
}

func TestSeveralNamesOfASourceFileAreSeveralFiles(t *testing.T) {
	b := newBench(t, map[string]string{"a": "x"})
	must(t, os.Link(b.src("a"), b.src("b")))
	one, two := b.lookup("/a"), b.lookup("/b")
	if one.Ino == two.Ino || one.Ino&ownBit == 0 || one.Nlink != 1 || !one.Shared {
		t.Errorf("a shows %+v, b shows %+v", one, two)
	}
	b.write("/a", "changed")
	if got := b.lookup("/a").Ino; got != one.Ino {
		t.Errorf("copy-up made the number %#x of %#x", got, one.Ino)
	}
	b.rename("/a", "/c")
	b.reopen()
	if got := b.lookup("/c").Ino; got != one.Ino {
		t.Errorf("rename and restart made the number %#x of %#x", got, one.Ino)
	}
	if got := b.read("/b"); got != "x" {
		t.Errorf("the other name reads %q", got)
	}
}

func TestErrorsNameTheVirtualPathAndTheErrno(t *testing.T) {
	b := newBench(t, map[string]string{"file": ""})
	tests := []struct {
		name string
		do   func() error
		kind errdefs.Kind
		want unix.Errno
	}{
		{"an absent name", func() error { _, err := b.Lookup("/x\n"); return err }, errdefs.NotFound, unix.ENOENT},
		{"below a file", func() error { _, err := b.Lookup("/file/x\n"); return err }, errdefs.Precondition, unix.ENOTDIR},
		{"a name too long", func() error { _, err := b.Mkdir(vpath.Path("/\n"+strings.Repeat("x", 256)), 0); return err }, errdefs.Invalid, unix.ENAMETOOLONG},
		{"a name that is taken", func() error { _, err := b.Symlink("\n", "/file"); return err }, errdefs.Exists, unix.EEXIST},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.do()
			if !errors.Is(err, tt.want) || !errdefs.Is(err, tt.kind) {
				t.Fatalf("error = %v (%v), want %v (%v)", err, errdefs.KindOf(err), tt.want, tt.kind)
			}
			if strings.Contains(err.Error(), b.dir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error text %q names the host or is not escaped", err)
			}
		})
	}
}

func TestSymlinksOfTheSourceAreNeverFollowed(t *testing.T) {
	b := newBench(t, map[string]string{"real/file": "inside"})
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o644))
	must(t, os.Symlink(outside, b.src("dir")))
	must(t, os.Symlink(filepath.Join(outside, "file"), b.src("link")))

	if target, err := b.Readlink("/link"); err != nil || target != filepath.Join(outside, "file") {
		t.Errorf("Readlink = %q, %v", target, err)
	}
	for _, p := range []vpath.Path{"/dir/file", "/dir/new"} {
		_, err := b.Lookup(p)
		wantErr(t, "lookup through a link", err, unix.ENOTDIR)
		_, _, err = b.Create(p, 0o644)
		wantErr(t, "create through a link", err, unix.ENOTDIR)
	}
	for _, write := range []bool{false, true} {
		_, _, err := b.Open("/link", write)
		wantErr(t, "open a link", err, unix.ELOOP)
	}
	if _, err := b.OpenSource("/dir/file"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("OpenSource through a link: %v, want ENOTDIR", err)
	}
	if _, err := b.OpenSource("/link"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("OpenSource of a link: %v, want ELOOP", err)
	}
}

func TestASwappedDirectoryNeverLeadsOutside(t *testing.T) {
	b := newBench(t, map[string]string{"dir/file": "inside", "evil": ""})
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o644))
	must(t, os.Remove(b.src("evil")))
	must(t, os.Symlink(outside, b.src("evil")))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, b.src("dir"), unix.AT_FDCWD, b.src("evil"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 2000 {
		b.Invalidate(vpath.Root)
		if content, err := readView(b.Stack, "/dir/file"); err == nil && content != "inside" {
			t.Errorf("read %q", content)
			break
		}
		if i, err := b.Lookup("/dir/file"); err == nil && i.Size != int64(len("inside")) {
			t.Errorf("size %d is not the file's inside", i.Size)
			break
		}
	}
	close(stop)
	<-done
}

func TestMovedSourceDirectoriesAreNoticed(t *testing.T) {
	for _, told := range []bool{true, false} {
		b := newBench(t, map[string]string{"dir/file": "old", "other/file": "new"})
		if got := b.read("/dir/file"); got != "old" {
			t.Fatalf("read %q", got)
		}
		must(t, os.Rename(b.src("dir"), b.src("gone")))
		must(t, os.Rename(b.src("other"), b.src("dir")))
		if told {
			b.Invalidate("/dir", "/other", "/gone")
		} else {
			b.dirs.age(2 * sourceTTL)
		}
		if got := b.read("/dir/file"); got != "new" {
			t.Errorf("told %v: read %q after the directory was replaced", told, got)
		}
		_, err := b.ReadDir("/other")
		wantErr(t, "list a directory that was moved away", err, unix.ENOENT)
	}
}

// age makes all cached views older.
func (c *dirCache) age(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.lru.Front(); e != nil; e = e.Next() {
		v := e.Value.(*mergedDir)
		v.readAt = v.readAt.Add(-d)
	}
}

// A directory that takes the place of another counts from the moment at which its
// watch begins.
func TestLookupsUseTheDirectoryThatWasOpenedLast(t *testing.T) {
	b := newBench(t, map[string]string{"d/old": "1"})
	b.lookup("/d/old") // keeps a handle of the directory
	must(t, os.Rename(b.src("/d"), b.src("/was")))
	must(t, os.Mkdir(b.src("/d"), 0o755))
	must(t, os.WriteFile(b.src("/d/new"), nil, 0o644))
	dir, err := b.OpenSourceDir("/d")
	must(t, err)
	must(t, dir.Close())
	b.lookup("/d/new")
	if _, err := b.LookupIn("/d", "old"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("the directory that is gone still shows: %v", err)
	}
}

func TestCachedHandlesAreBounded(t *testing.T) {
	b := newBench(t, nil)
	for i := range 2 * maxDirFds {
		p := vpath.Root.Child(strings.Repeat("x", i%200+1) + string(rune('a'+i/200)))
		_, err := b.Mkdir(p, 0o755)
		must(t, err)
		_, err = b.ReadDir(p)
		must(t, err)
	}
	if b.dirs.fds > maxDirFds || b.dirs.lru.Len() > maxDirFds {
		t.Errorf("%d handles in %d views, want at most %d", b.dirs.fds, b.dirs.lru.Len(), maxDirFds)
	}
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	if len(open) > maxDirFds+100 {
		t.Errorf("%d descriptors are open", len(open))
	}
}

func TestANestedMountIsAnEmptyDirectory(t *testing.T) {
	testenv.Root(t)
	b := newBench(t, map[string]string{"mnt/below": "hidden", "file": ""})
	must(t, unix.Mount("tmpfs", b.src("mnt"), "tmpfs", 0, "size=1m"))
	defer func() { must(t, unix.Unmount(b.src("mnt"), unix.MNT_DETACH)) }()
	must(t, os.WriteFile(b.src("mnt/secret"), nil, 0o644))
	b.Invalidate(vpath.Root)

	i := b.lookup("/mnt")
	if !i.Mounted || i.Mode != unix.S_IFDIR|0o555 {
		t.Errorf("the mount shows as %+v", i)
	}
	if got := b.names("/mnt"); len(got) != 0 {
		t.Errorf("the mount lists %q", got)
	}
	_, err := b.Lookup("/mnt/secret")
	wantErr(t, "lookup in a mount", err, unix.ENOENT)
	_, err = b.Mkdir("/mnt/new", 0o755)
	wantErr(t, "mkdir in a mount", err, unix.EROFS)
	_, err = b.SetAttr("/mnt", SetAttr{Mode: new(uint32(0o777))})
	wantErr(t, "chmod of a mount", err, unix.EROFS)
	wantErr(t, "rmdir of a mount", b.Rmdir("/mnt", nil), unix.EBUSY)
	_, err = b.Rename("/mnt", "/moved", RenameOptions{})
	wantErr(t, "rename of a mount", err, unix.EROFS)
	_, err = b.Rename("/file", "/mnt/file", RenameOptions{})
	wantErr(t, "rename into a mount", err, unix.EROFS)
	if entries, err := b.ReadSourceDir("/mnt"); err != nil || len(entries) != 0 {
		t.Errorf("ReadSourceDir of a mount = %v, %v", entries, err)
	}
	if _, err := b.OpenSource("/mnt/secret"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("OpenSource in a mount: %v, want EXDEV", err)
	}
}

func TestAFileMountedInTheSourceIsClosed(t *testing.T) {
	testenv.Root(t)
	b := newBench(t, map[string]string{"file": "below", "other": "mounted"})
	must(t, unix.Mount(b.src("other"), b.src("file"), "", unix.MS_BIND, ""))
	defer func() { must(t, unix.Unmount(b.src("file"), unix.MNT_DETACH)) }()
	if i := b.lookup("/file"); !i.Mounted || i.Mode != unix.S_IFREG || i.Size != 0 {
		t.Errorf("the mount shows as %+v", i)
	}
	_, _, err := b.Open("/file", false)
	wantErr(t, "open a mount", err, unix.EACCES)
	_, _, err = b.Open("/file", true)
	wantErr(t, "open a mount for writing", err, unix.EROFS)
	_, err = b.Unlink("/file", false)
	wantErr(t, "unlink a mount", err, unix.EBUSY)
}

func TestSpecialFilesAreNeverOpened(t *testing.T) {
	b := newBench(t, nil)
	must(t, unix.Mkfifo(b.src("fifo"), 0o644))
	_, err := b.Mknod("/mine", unix.S_IFIFO|0o600)
	must(t, err)
	for _, p := range []vpath.Path{"/fifo", "/mine"} {
		for _, write := range []bool{false, true} { // opening a FIFO would block
			_, _, err := b.Open(p, write)
			wantErr(t, "open a FIFO", err, unix.ENXIO)
		}
	}
	_, err = b.SetAttr("/fifo", SetAttr{Mode: new(uint32(0o600))})
	must(t, err)
	b.rename("/fifo", "/moved")
	if i := b.lookup("/moved"); i.Mode != unix.S_IFIFO|0o600 {
		t.Errorf("the moved FIFO has mode %o", i.Mode)
	}
	for _, kind := range []uint32{unix.S_IFCHR, unix.S_IFBLK} {
		_, err := b.Mknod("/dev", kind|0o666)
		wantErr(t, "mknod of a device", err, unix.EPERM)
	}
}

func TestDeepTreesAndLongPaths(t *testing.T) {
	b := newBench(t, nil)
	p := vpath.Root
	for range 2000 {
		p = p.Child("deep")
		_, err := b.Mkdir(p, 0o755)
		must(t, err)
	}
	f, _, err := b.Create(p.Child("file"), 0o644)
	must(t, err)
	f.Close()
	b.reopen()
	if i, err := b.Lookup(p.Child("file")); err != nil || i.Size != 0 {
		t.Fatalf("the deep file: %+v, %v", i, err)
	}
	changes, err := b.Changes()
	must(t, err)
	if len(changes) != 2001 {
		t.Errorf("%d changes, want 2001", len(changes))
	}
	b.rename("/deep", "/moved")
	must(t, b.Reset())
	if left, err := os.ReadDir(filepath.Join(b.dir, "work")); err != nil || len(left) != 0 {
		t.Errorf("work holds %v, %v", left, err)
	}

	long := vpath.Root
	for range 40 {
		long = long.Child(".wh." + strings.Repeat("\xff", 251))
		_, err := b.Mkdir(long, 0o755)
		must(t, err)
	}
	b.write(string(long.Child("file")), "found")
	b.reopen()
	if got := b.read(string(long.Child("file"))); got != "found" {
		t.Errorf("at the end of a path of %d bytes: %q", len(long), got)
	}
}

func TestDotsNeverLeadAnywhere(t *testing.T) {
	b := newBench(t, map[string]string{"dir/file": ""})
	b.write("/dir/file", "x")
	for _, name := range []string{".", ".."} {
		for _, dir := range []vpath.Path{"/", "/dir"} {
			_, err := b.LookupIn(dir, name)
			if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				t.Errorf("lookup of %q in %s: %v", name, dir, err)
			}
			if _, err := b.Mkdir(dir.Child(name), 0o755); err == nil {
				t.Errorf("mkdir of %q in %s succeeded", name, dir)
			}
			if _, err := b.SourceInfo(dir.Child(name)); err == nil {
				t.Errorf("the source's %q in %s was found", name, dir)
			}
		}
	}
	if _, err := b.Lookup("/dir/../dir/file"); err == nil {
		t.Error("a path through .. was found")
	}
}

func TestAClosedStackAnswers(t *testing.T) {
	b := newBench(t, map[string]string{"dir/file": ""})
	s := b.Stack
	f, _, err := s.Create("/dir/new", 0o644)
	must(t, err)
	defer f.Close()
	b.close()
	for what, err := range map[string]error{
		"lookup": second(s.Lookup("/dir/file")), "root": second(s.Lookup("/")), "mkdir": second(s.Mkdir("/x", 0o755)),
		"list": second(s.ReadDir("/dir")), "copy up": second(s.CopyUp("/dir/file")), "changes": second(s.Changes()),
		"drop": s.Drop("/dir/file"), "freeze": second(s.Freeze()),
	} {
		wantErr(t, what, err, unix.EBADF)
	}
	_, err = f.WriteAt([]byte("x"), 0)
	wantErr(t, "write", err, unix.ESTALE)
}
