package layer

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// newTransforming makes a bench that shows files called "upper" in capitals, or not at all if
// they have a digit, and files called "other" with the content of /target. It counts the calls
// of Make.
func newTransforming(t *testing.T, files map[string]string) (b *bench, made *int) {
	t.Helper()
	b, made = newBench(t, files), new(int)
	b.transformUpper(made)
	return b, made
}

func (b *bench) transformUpper(made *int) {
	b.SetTransforms(func(p vpath.Path) *Transform {
		switch p.Base() {
		case "upper":
			return &Transform{Key: "upper", MaxBytes: 100, Make: func(content []byte) ([]byte, error) {
				*made++
				if bytes.ContainsAny(content, "0123456789") {
					return nil, errors.New("a digit")
				}
				return slices.Concat(bytes.ToUpper(content), []byte("!")), nil
			}}
		case "other":
			return &Transform{Key: "other", Target: "/target"}
		case "gone":
			return &Transform{Key: "gone"}
		}
		return nil
	})
}

func (b *bench) wantAbsent(p vpath.Path) {
	b.t.Helper()
	if i, err := b.Lookup(p); !errdefs.Is(err, errdefs.NotFound) {
		b.t.Errorf("Lookup(%s) = %+v, %v, want NotFound", p, i, err)
	}
	if _, _, err := b.Open(p, false); !errdefs.Is(err, errdefs.NotFound) {
		b.t.Errorf("Open(%s) = %v, want NotFound", p, err)
	}
}

func TestATransformShowsAnotherContentInEveryLayer(t *testing.T) {
	b, made := newTransforming(t, map[string]string{"upper": "abc", "d/upper": "1", "big/upper": strings.Repeat("x", 101), "gone": "x"})
	b.mkdir("/delta")
	b.write("/delta/new", "def")
	b.rename("/delta/new", "/delta/upper")
	for range 2 {
		for p, want := range map[string]string{"/upper": "ABC!", "/delta/upper": "DEF!"} {
			if got, i := b.read(p), b.lookup(p); got != want || i.Size != int64(len(want)) {
				t.Errorf("%s reads %q, size %d, want %q", p, got, i.Size, want)
			}
		}
	}
	if *made != 2 {
		t.Errorf("Make was called %d times", *made)
	}
	for _, p := range []vpath.Path{"/d/upper", "/big/upper", "/gone"} {
		b.wantAbsent(p)
	}
	must(t, os.WriteFile(b.src("d/upper"), []byte("longer"), 0o644))
	if got := b.read("/d/upper"); got != "LONGER!" {
		t.Errorf("after a change it reads %q", got)
	}
	src, err := b.SourceInfo("/upper")
	must(t, err)
	if i := b.lookup("/upper"); i.Ino != src.Ino || i.Mtime != src.Mtime || i.ID == src.ID || i.Mode != src.Mode {
		t.Errorf("the source's is %+v, shown is %+v", src, i)
	}
	b.SetTransforms(nil)
	if got := b.read("/upper"); got != "abc" {
		t.Errorf("without transforms it reads %q", got)
	}
}

func TestAFileWithATransformCannotBeCopiedUp(t *testing.T) {
	b, _ := newTransforming(t, map[string]string{"upper": "abc", "other": "abc", "target": "x"})
	b.write("/in the delta", "x")
	b.rename("/in the delta", "/upper2")
	for _, p := range []vpath.Path{"/upper", "/other"} {
		_, _, err := b.Open(p, true)
		wantErr(t, "open "+p.String(), err, unix.EACCES)
		_, err = b.CopyUp(p)
		wantErr(t, "copy up "+p.String(), err, unix.EACCES)
		size := int64(0)
		_, err = b.SetAttr(p, SetAttr{Size: &size})
		wantErr(t, "truncate "+p.String(), err, unix.EACCES)
		_, err = b.Link(p, "/linked")
		wantErr(t, "link "+p.String(), err, unix.EACCES)
		_, err = b.Unlink(p, true)
		wantErr(t, "unlink "+p.String(), err, unix.EACCES)
	}
	if got := b.changes(); !slices.Equal(got, []string{"c /upper2"}) {
		t.Errorf("changes: %q", got)
	}
}

func TestATransformShowsTheContentOfAnotherFile(t *testing.T) {
	b, _ := newTransforming(t, map[string]string{"other": "own", "target": "one"})
	seen := map[FileID]bool{}
	is := func(want string) {
		t.Helper()
		i := b.lookup("/other")
		if got := b.read("/other"); got != want || i.Size != int64(len(want)) || !i.Borrowed {
			t.Errorf("it reads %q, %+v, want %q", got, i, want)
		}
		if seen[i.ID] {
			t.Error("the identity is that of an earlier content")
		}
		seen[i.ID] = true
	}
	is("one")
	b.write("/target", "three")
	is("three")
	if got := b.read("/target"); got != "three" {
		t.Errorf("the target reads %q", got)
	}
	_, err := b.Link("/target", "/target2")
	must(t, err)
	b.wantAbsent("/other")
	b.unlink("/target2")
	if got := b.read("/other"); got != "three" {
		t.Errorf("with one name again it reads %q", got)
	}
	b.unlink("/target")
	b.wantAbsent("/other")
	b.mkdir("/target")
	b.wantAbsent("/other")
	must(t, b.Rmdir("/target", nil))
	_, err = b.Symlink("other", "/target")
	must(t, err)
	b.wantAbsent("/other")
}

func TestWhoReviewsSeesTheContent(t *testing.T) {
	b, _ := newTransforming(t, map[string]string{"d/x": ""})
	b.write("/upper2", "abc")
	b.rename("/upper2", "/upper")
	stored, err := b.LookupStored("/upper")
	must(t, err)
	if stored.Size != 3 {
		t.Errorf("stored are %d bytes", stored.Size)
	}
	f, err := b.OpenDelta("/upper")
	must(t, err)
	defer f.Close()
	buf := make([]byte, 10)
	if n, _ := f.Read(buf); string(buf[:n]) != "abc" {
		t.Errorf("the delta's is %q", buf[:n])
	}
}

func TestASeekInWhatATransformMade(t *testing.T) {
	b, _ := newTransforming(t, map[string]string{"upper": "abc"})
	f, _, err := b.Open("/upper", false)
	must(t, err)
	defer f.Close()
	if f.Fd() >= 0 || f.Transform() != "upper" {
		t.Errorf("descriptor %d, transform %q", f.Fd(), f.Transform())
	}
	must(t, f.Sync(false))
	for _, c := range []struct {
		off, want int64
		whence    int
		err       error
	}{
		{1, 1, unix.SEEK_DATA, nil},
		{1, 4, unix.SEEK_HOLE, nil},
		{4, 0, unix.SEEK_DATA, unix.ENXIO},
		{-1, 0, unix.SEEK_HOLE, unix.ENXIO},
		{0, 0, unix.SEEK_END, unix.EINVAL},
	} {
		if got, err := f.Seek(c.off, c.whence); got != c.want || err != c.err {
			t.Errorf("Seek(%d, %d) = %d, %v, want %d, %v", c.off, c.whence, got, err, c.want, c.err)
		}
	}
	if n, err := f.Pread(make([]byte, 10), 4); n != 0 || err != nil {
		t.Errorf("behind the end: %d, %v", n, err)
	}
}
