package layer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestBytesAreBounded(t *testing.T) {
	b := newBench(t, map[string]string{"source": "x"}, func(o *Options) { o.Quota.Bytes = 1 << 20 })
	f, _, err := b.Create("/file", 0o644)
	must(t, err)
	defer f.Close()
	block := make([]byte, 64<<10)
	written := int64(0)
	for {
		n, err := f.WriteAt(block, written)
		written += int64(n)
		if err != nil {
			wantErr(t, "write over the quota", err, unix.EDQUOT)
			break
		}
	}
	if written < 768<<10 || written > 1<<20 {
		t.Errorf("%d bytes were written under a quota of 1 MiB", written)
	}
	if _, err := f.WriteAt([]byte("again"), 0); err != nil {
		t.Errorf("overwriting in place: %v", err)
	}
	wantErr(t, "allocate over the quota", f.Allocate(0, 0, 1<<30), unix.EDQUOT)
	_, err = b.SetAttr("/file", SetAttr{Size: new(int64(1 << 40))})
	must(t, err) // a hole costs nothing
	if _, err := f.WriteAt(block, 1<<39); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("writing into a hole over the quota: %v", err)
	}

	_, err = b.SetAttr("/file", SetAttr{Size: new(written)})
	if err != nil {
		t.Errorf("truncating at the quota: %v", err)
	}
	must(t, f.Allocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096))
	used := b.Statfs()
	b.reopen()
	if got := b.Statfs(); got.Inodes != used.Inodes || got.Bytes > used.Bytes+blockBytes*64 || got.Bytes < used.Bytes/2 {
		t.Errorf("counted at Open %+v, before %+v", got, used)
	}
	b.unlink("/file")
	if got := b.Statfs().Bytes; got != 0 {
		t.Errorf("%d bytes are in use after the file went", got)
	}
	b.write("/source", "copied up again")
}

func TestInodesAreBounded(t *testing.T) {
	b := newBench(t, map[string]string{"a": "", "b": "", "c": ""}, func(o *Options) { o.Quota.Inodes = 3 })
	for _, p := range []string{"/1", "/2", "/3"} {
		b.mkdir(p)
	}
	_, err := b.Mkdir("/4", 0o755)
	wantErr(t, "mkdir over the quota", err, unix.EDQUOT)
	_, _, err = b.Create("/4", 0o644)
	wantErr(t, "create over the quota", err, unix.EDQUOT)
	_, err = b.CopyUp("/a")
	wantErr(t, "copy-up over the quota", err, unix.EDQUOT)
	_, err = b.CreateOrphan(0o600)
	wantErr(t, "a nameless file over the quota", err, unix.EDQUOT)
	for _, p := range []string{"/a", "/b", "/c"} {
		b.unlink(p) // a removal never fails for quota
	}
	b.reopen()
	must(t, b.Rmdir("/1", nil))
	b.mkdir("/4")
}

func TestAFullDiskLosesNothing(t *testing.T) {
	testenv.Root(t)
	root := t.TempDir()
	disk := filepath.Join(root, "disk")
	must(t, os.Mkdir(disk, 0o700))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	b := &bench{t: t, source: filepath.Join(root, "source"), dir: filepath.Join(disk, "layers")}
	must(t, os.Mkdir(b.source, 0o755))
	for i := range 30 {
		must(t, os.WriteFile(b.src(fmt.Sprintf("f%d", i)), bytes.Repeat([]byte{byte('a' + i)}, 100<<10), 0o644))
	}
	b.open()
	t.Cleanup(b.close)

	f, _, err := b.Create("/mine", 0o644)
	must(t, err)
	_, err = f.WriteAt([]byte("written"), 0)
	must(t, err)
	f.Close()
	full := 0
	for i := range 30 {
		p := vpath.Path(fmt.Sprintf("/f%d", i))
		if _, err := b.CopyUp(p); errors.Is(err, unix.ENOSPC) {
			full++
		} else {
			must(t, err)
		}
	}
	if full == 0 {
		t.Fatal("the disk never was full")
	}
	g, _, err := b.Open("/mine", true)
	must(t, err)
	defer g.Close()
	n, err := g.WriteAt(make([]byte, 1<<20), 100)
	if !errors.Is(err, unix.ENOSPC) || !errdefs.Is(err, errdefs.Exhausted) || n == 1<<20 {
		t.Errorf("writing to a full disk: %d, %v", n, err)
	}
	b.reopen()
	if got := b.read("/mine")[:7]; got != "written" {
		t.Errorf("what was written reads %q", got)
	}
	for i := range 30 {
		want := string(bytes.Repeat([]byte{byte('a' + i)}, 100<<10))
		if got := b.read(fmt.Sprintf("/f%d", i)); got != want {
			t.Errorf("f%d has %d bytes after a full disk", i, len(got))
		}
	}
	must(t, b.Reset())
	b.write("/f0", "there is room again")
}

// TestRefusedCopiesLeaveNoRecord: records do not count for the quota, so repeated attempts
// must not add any.
func TestRefusedCopiesLeaveNoRecord(t *testing.T) {
	b := newBench(t, map[string]string{"dir/sub/file": "x"}, func(o *Options) { o.Quota.Inodes = 2 })
	must(t, os.Symlink("target", filepath.Join(b.source, "dir/sub/link")))
	try := func() {
		t.Helper()
		_, _, err := b.Open("/dir/sub/file", true)
		wantErr(t, "open to write", err, unix.EDQUOT)
		_, err = b.SetAttr("/dir/sub/link", SetAttr{Mtime: &unix.Timespec{Sec: 1}})
		wantErr(t, "set the times of a link", err, unix.EDQUOT)
	}
	try()
	before := b.logSize()
	for range 10 {
		try()
	}
	if grown := b.logSize() - before; grown > 0 {
		t.Errorf("the log grew by %d bytes", grown)
	}
}

// TestEntriesWithoutContentAreBounded: the disk space of names, directories and links
// counts too.
func TestEntriesWithoutContentAreBounded(t *testing.T) {
	const limit = 256 << 10
	long := strings.Repeat("n", 240)
	var st unix.Stat_t
	must(t, unix.Stat(t.TempDir(), &st))
	if st.Blocks == 0 {
		t.Skip("this file system does not say what a directory takes")
	}
	for what, make := range map[string]func(b *bench, p vpath.Path) error{
		"directories": func(b *bench, p vpath.Path) error { _, err := b.Mkdir(p, 0o755); return err },
		"long links":  func(b *bench, p vpath.Path) error { _, err := b.Symlink(strings.Repeat("t", 4000), p); return err },
		"empty files": func(b *bench, p vpath.Path) error { _, err := b.Mknod(p, 0o644); return err },
		"hard links":  func(b *bench, p vpath.Path) error { _, err := b.Link("/file", p); return err },
		"files below": func(b *bench, p vpath.Path) error { _, err := b.Mknod("/dir"+p, 0o644); return err },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, nil, func(o *Options) { o.Quota.Bytes = limit })
			b.write("/file", "x")
			b.mkdir("/dir")
			var err error
			for i := 0; err == nil; i++ {
				if i > limit/200 {
					t.Fatalf("%d were made within %d bytes", i, limit)
				}
				err = make(b, vpath.Path(fmt.Sprint("/", long, i)))
			}
			wantErr(t, "make one more", err, unix.EDQUOT)
			used := b.Statfs()
			b.reopen()
			if got := b.Statfs(); got.Inodes != used.Inodes || got.Bytes != used.Bytes {
				t.Errorf("counted at Open %+v, before %+v", got, used)
			}
			must(t, b.Reset())
			b.write("/file", "there is room again")
		})
	}
}

// TestStacksShareAQuota: what one stack stores reduces the quota of the other, also after
// Open.
func TestStacksShareAQuota(t *testing.T) {
	b := newBench(t, nil, func(o *Options) { o.Quota.Bytes = 1 << 20 })
	empty := openSourceFile(t, t.TempDir())
	dir := filepath.Join(t.TempDir(), "other")
	open := func() *Stack {
		other, err := Open(Options{Source: empty, Dir: dir, QuotaOf: b.Stack})
		must(t, err)
		return other
	}
	write := func(s *Stack, p vpath.Path, n int) error {
		f, _, err := s.Create(p, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(make([]byte, n), 0)
		return err
	}
	other := open()
	must(t, write(other, "/f", 640<<10))
	wantErr(t, "write over the common quota", write(b.Stack, "/f", 640<<10), unix.EDQUOT)
	b.unlink("/f")
	if a, o := b.Statfs(), other.Statfs(); a != o || a.Bytes < 640<<10 || a.Inodes != 1 {
		t.Errorf("used %+v and %+v", a, o)
	}
	must(t, other.Close())
	b.reopen()
	if got := b.Statfs().Inodes; got != 0 {
		t.Errorf("%d inodes are in use of one alone", got)
	}
	other = open()
	defer other.Close()
	wantErr(t, "write over the common quota", write(b.Stack, "/f", 640<<10), unix.EDQUOT)
	_, err := other.Unlink("/f", false)
	must(t, err)
	must(t, write(b.Stack, "/g", 640<<10))
}

// TestContentsOfStacksThatShareAQuota: each stack counts the contents that it records, and
// releases no others.
func TestContentsOfStacksThatShareAQuota(t *testing.T) {
	b := newBench(t, nil, func(o *Options) { o.Quota.Bytes = 1 << 20 })
	others := make([]*Stack, 2)
	for i := range others {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, 64<<10), 0o644))
		other, err := Open(Options{Source: openSourceFile(t, dir), Dir: filepath.Join(t.TempDir(), "other"), QuotaOf: b.Stack})
		must(t, err)
		defer other.Close()
		f, _, err := other.Open("/f", true)
		must(t, err)
		_, err = f.WriteAt([]byte("x"), 0)
		must(t, err)
		must(t, f.Close())
		others[i] = other
	}
	both := b.Statfs().Bytes
	must(t, others[0].Reset())
	one := b.Statfs().Bytes
	if one == 0 || one != both/2 {
		t.Errorf("%d bytes are in use of two stacks, and %d of one", both, one)
	}
	must(t, others[1].Reset())
	if none := b.Statfs().Bytes; none != 0 {
		t.Errorf("%d bytes are in use of none", none)
	}
}

// TestRefusalsAreCounted: for all stacks that share the quota, and not what needed no more room.
func TestRefusalsAreCounted(t *testing.T) {
	b := newBench(t, nil, func(o *Options) { o.Quota = Quota{Bytes: 1 << 20, Inodes: 2} })
	other, err := Open(Options{Source: openSourceFile(t, t.TempDir()), Dir: filepath.Join(t.TempDir(), "other"), QuotaOf: b.Stack})
	must(t, err)
	defer other.Close()
	f, _, err := other.Create("/a", 0o600)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt(make([]byte, 1000<<10), 0)
	must(t, err)
	_, err = f.WriteAt([]byte("in place"), 0)
	must(t, err)
	if got := b.Refused(); got != (Refusals{}) {
		t.Errorf("%+v were refused, want nothing", got)
	}
	_, err = f.WriteAt(make([]byte, 64<<10), 1000<<10)
	wantErr(t, "write over the quota", err, unix.EDQUOT)
	b.mkdir("/1")
	_, err = b.Mkdir("/2", 0o755)
	wantErr(t, "mkdir over the quota", err, unix.EDQUOT)
	if got := b.Refused(); got != (Refusals{Bytes: 1, Inodes: 1}) || other.Refused() != got {
		t.Errorf("%+v were refused, and %+v to the other, want one write and one entry", got, other.Refused())
	}
}

// TestWhatSnapshotsKeepCounts: a frozen layer that only a snapshot shows counts until it is
// removed, however the stack came to show it no more.
func TestWhatSnapshotsKeepCounts(t *testing.T) {
	var kept []string
	for name, leave := range map[string]func(b *bench, frozen string){
		"rewound": func(b *bench, _ string) {
			b.close()
			must(t, Rewind(b.dir, b.o.Store, ""))
			b.open()
		},
		"reset":    func(b *bench, _ string) { must(t, b.Reset()) },
		"squashed": func(b *bench, _ string) { must(t, b.squash(nil, []vpath.Path{"/f"})) },
	} {
		t.Run(name, func(t *testing.T) {
			kept = nil
			b := newBench(t, nil, func(o *Options) {
				o.Quota, o.Kept = Quota{Bytes: 1 << 20}, func() ([]string, error) { return kept, nil }
			})
			b.write("/f", strings.Repeat("x", 600<<10))
			frozen, err := b.Stack.Freeze()
			must(t, err)
			kept = []string{frozen}
			leave(b, frozen)
			if used := b.Statfs(); used.Bytes < 600<<10 || used.Inodes != 1 {
				t.Errorf("used %+v", used)
			}
			f, _, err := b.Create("/g", 0o644)
			must(t, err)
			defer f.Close()
			_, err = f.WriteAt(make([]byte, 600<<10), 0)
			wantErr(t, "write beside what a snapshot keeps", err, unix.EDQUOT)
			kept = nil
			must(t, os.RemoveAll(filepath.Join(b.o.Store, frozen)))
			if _, err := f.WriteAt(make([]byte, 600<<10), 0); err != nil {
				t.Errorf("write after the snapshot was removed: %v", err)
			}
		})
	}
}
