package layer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestCopyUpKeepsWhatTheFileShows(t *testing.T) {
	b := newBench(t, map[string]string{"dir/file": "content"})
	must(t, os.Chmod(b.src("dir/file"), 0o440))
	ts := unix.Timespec{Sec: 1e9, Nsec: 123456789}
	must(t, setTimes(unix.AT_FDCWD, b.src("dir/file"), &ts, &ts))
	must(t, setTimes(unix.AT_FDCWD, b.src("dir"), &ts, &ts))
	before := b.lookup("/dir/file")
	i, err := b.CopyUp("/dir/file")
	must(t, err)
	if i.Origin != Delta || i.Mode != before.Mode || i.Ino != before.Ino || i.Mtime != ts || i.Size != before.Size {
		t.Errorf("the copy shows %+v, the source's file %+v", i, before)
	}
	if got := b.lookup("/dir"); got.Mtime != ts {
		t.Errorf("copy-up moved the directory's mtime to %v", got.Mtime)
	}
	if got := b.read("/dir/file"); got != "content" {
		t.Errorf("the copy reads %q", got)
	}
}

func TestCopyUpKeepsTheOwner(t *testing.T) {
	testenv.Root(t)
	b := newBench(t, map[string]string{"dir/file": ""})
	must(t, os.Lchown(b.src("dir/file"), 1234, 5678))
	must(t, os.Lchown(b.src("dir"), 4321, 8765))
	_, err := b.CopyUp("/dir/file")
	must(t, err)
	if i, d := b.lookup("/dir/file"), b.lookup("/dir"); i.UID != 1234 || i.GID != 5678 || d.UID != 4321 || d.GID != 8765 {
		t.Errorf("the copies belong to %d:%d and %d:%d", i.UID, i.GID, d.UID, d.GID)
	}
}

func TestSparseFilesStaySparse(t *testing.T) {
	b := newBench(t, nil)
	f, err := os.Create(b.src("sparse"))
	must(t, err)
	must(t, f.Truncate(1<<30))
	_, err = f.WriteAt([]byte("middle"), 512<<20)
	must(t, err)
	f.Close()
	i, err := b.CopyUp("/sparse")
	must(t, err)
	if i.Size != 1<<30 || i.Blocks*blockBytes > 1<<20 {
		t.Errorf("the copy has %d bytes in %d blocks", i.Size, i.Blocks)
	}
	g, _, err := b.Open("/sparse", false)
	must(t, err)
	defer g.Close()
	buf := make([]byte, 8)
	if n, err := g.ReadAt(buf, 512<<20-1); err != nil || string(buf[:n]) != "\x00middle\x00" {
		t.Errorf("around the data it reads %q, %v", buf[:n], err)
	}
}

func TestTruncationCopiesNoMoreThanItKeeps(t *testing.T) {
	b := newBench(t, map[string]string{"big": strings.Repeat("x", 8<<20)}, func(o *Options) { o.Quota.Bytes = 1 << 20 })
	i, err := b.SetAttr("/big", SetAttr{Size: new(int64(3))})
	must(t, err)
	if i.Size != 3 || b.read("/big") != "xxx" {
		t.Errorf("truncated it shows %+v", i)
	}
	_, err = b.SetAttr("/big", SetAttr{Size: new(int64(-1))})
	wantErr(t, "a negative size", err, unix.EINVAL)
}

func TestContentIsKeptForALaterMerge(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *bench)
	}{
		{"written", func(b *bench) { b.write("/file", "new") }},
		{"replaced by a rename", func(b *bench) { b.write("/tmp", "new"); b.rename("/tmp", "/file") }},
		{"removed and made again", func(b *bench) { b.unlink("/file"); b.write("/file", "new") }},
		{"removed and moved into place", func(b *bench) { b.unlink("/file"); b.write("/tmp", "new"); b.rename("/tmp", "/file") }},
		{"moved away and made again", func(b *bench) { b.rename("/file", "/other"); b.write("/file", "new") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, map[string]string{"file": "before"})
			tt.change(b)
			must(t, os.WriteFile(b.src("file"), []byte("the user's"), 0o644))
			base, err := b.Base("/file")
			must(t, err)
			f, err := b.BaseContent(base)
			must(t, err)
			defer f.Close()
			if got, err := safefs.ReadRange(int(f.Fd()), 0, 100); err != nil || string(got) != "before" {
				t.Errorf("recorded content = %q, %v", got, err)
			}
			if ok, err := b.SourceMatches("/file", base); ok || err != nil {
				t.Errorf("the changed source matches: %v, %v", ok, err)
			}
			must(t, os.WriteFile(b.src("file"), []byte("before"), 0o644))
			if ok, err := b.SourceMatches("/file", base); !ok || err != nil {
				t.Errorf("the restored source does not match: %v, %v", ok, err)
			}
		})
	}
}

func TestMakingAndRemovingForEverDoesNotFillTheLog(t *testing.T) {
	b := newBench(t, map[string]string{"file": "before"})
	var after int64
	for i := range 100 {
		b.unlink("/file")
		b.write("/file", "x")
		if i == 0 {
			after = b.logSize()
		}
	}
	if b.logSize() != after {
		t.Errorf("the log grew from %d to %d bytes", after, b.logSize())
	}
}

func TestLongFilesAreRecordedByIdentity(t *testing.T) {
	b := newBench(t, map[string]string{"long": strings.Repeat("x", ContentMax+1)})
	b.write("/long", "new")
	base, err := b.Base("/long")
	must(t, err)
	if base == nil || base.Size != ContentMax+1 || base.SHA256 != nil {
		t.Fatalf("base = %+v", base)
	}
	if ok, err := b.SourceMatches("/long", base); !ok || err != nil {
		t.Errorf("the unchanged source does not match: %v, %v", ok, err)
	}
	must(t, os.WriteFile(b.src("long"), []byte("edited"), 0o644))
	if ok, err := b.SourceMatches("/long", base); ok || err != nil {
		t.Errorf("the changed source matches: %v, %v", ok, err)
	}
}

func TestAFileThatChangesWhileItIsCopiedIsCopiedWhole(t *testing.T) {
	b := newBench(t, map[string]string{"file": ""})
	const size = 300 << 10
	write := func(c byte) {
		f, err := os.OpenFile(b.src("file"), os.O_WRONLY, 0)
		must(t, err)
		defer f.Close()
		_, err = f.Write(bytes.Repeat([]byte{c}, size))
		must(t, err)
	}
	write('a')
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for c := byte('a'); ; c = 'a' + (c-'a'+1)%26 {
			select {
			case <-stop:
				return
			default:
				write(c)
			}
		}
	})
	for range 20 {
		_, err := b.CopyUp("/file")
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		must(t, err)
		content := b.read("/file")
		if len(content) != size || strings.Count(content, content[:1]) != size {
			t.Errorf("the copy mixes versions: %q…%q", content[:1], content[len(content)-1:])
		}
		must(t, b.Drop("/file"))
	}
	close(stop)
	writer.Wait()
}

func TestConcurrentUseOfOneTree(t *testing.T) {
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("d%d/f%d", i%4, i)] = "source"
	}
	b := newBench(t, files, func(o *Options) { o.Quota = Quota{Bytes: 64 << 20, Inodes: 10000} })
	var g sync.WaitGroup
	for w := range 8 {
		g.Go(func() {
			for i := range 40 {
				p := vpath.Path(fmt.Sprintf("/d%d/f%d", i%4, i))
				switch (w + i) % 8 {
				case 0:
					_, _ = b.SetAttr(p, SetAttr{Mode: new(uint32(0o600))})
				case 1:
					o, _ := b.Unlink(p, true)
					o.Forget()
				case 2:
					_, _ = b.Rename(p, vpath.Path(fmt.Sprintf("/d%d/g%d", w%4, i)), RenameOptions{})
				case 3:
					_, _ = b.Rename(p.Dir(), vpath.Path(fmt.Sprintf("/d%d", 4+w%2)), RenameOptions{})
				case 4:
					_, _ = b.ReadDir(p.Dir())
				case 5:
					_, _ = b.Changes()
				case 6:
					_, _ = b.Link(p, p+"-linked")
				}
				if f, _, err := b.Open(p, true); err == nil {
					if _, err := f.WriteAt([]byte("sandbox"), 0); err != nil && !errors.Is(err, unix.ESTALE) {
						t.Errorf("write: %v", err)
					}
					f.Close()
				}
			}
		})
	}
	g.Wait()
	must(t, b.Freeze())
	b.reopen()
	for _, n := range plainTree(t, b.source) {
		if n.Content != "" && n.Content != "source" {
			t.Errorf("the source's %s reads %q", n.Path, n.Content)
		}
	}
	must(t, b.Reset())
	if u := b.Statfs(); u.Bytes != 0 || u.Inodes != 0 {
		t.Errorf("nothing is left, but counted are %+v", u)
	}
}
