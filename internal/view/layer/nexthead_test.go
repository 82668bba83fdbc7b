package layer

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// A head that is made beside the present one replaces it in one step, and never one that has
// changed meanwhile.
func TestANextHeadReplacesAnEmptyOneOnly(t *testing.T) {
	b := newBench(t, map[string]string{"a": "source"})
	b.write("/a", "first")
	below, err := b.Stack.Freeze()
	must(t, err)
	b.close()
	const merged = "ly_0000000000000001"
	must(t, os.MkdirAll(filepath.Join(b.o.Store, merged, "top"), 0o700))
	next := func() *NextHead {
		h, err := PrepareHead(b.o.Store, below, merged)
		must(t, err)
		o := b.o
		o.Source, o.Dir = openSourceFile(t, b.source), h.Dir()
		s, err := Open(o)
		must(t, err)
		_, err = s.Unlink("/a", false)
		must(t, err)
		must(t, s.Close())
		return h
	}
	h := next()
	b.open()
	b.write("/b", "meanwhile")
	b.close()
	if err := h.Put(b.dir); !errdefs.Is(err, errdefs.Precondition) {
		t.Fatalf("a head with changes was replaced: %v", err)
	}
	b.open()
	if got := b.read("/a") + b.read("/b"); got != "firstmeanwhile" {
		t.Errorf("after that it shows %q", got)
	}
	b.unlink("/b")
	b.close()
	must(t, next().Put(b.dir))
	b.open()
	if _, err := b.Lookup("/a"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("the next head does not show: %v", err)
	}
	lineage, err := LineageOf(b.dir)
	if want := []string{below, merged}; err != nil || !slices.Equal(lineage.Parents, want) {
		t.Errorf("it was made of %q, %v, want %q", lineage, err, want)
	}
	if left, err := os.ReadDir(b.o.Store); err != nil || len(left) != 2 {
		t.Errorf("the store has %v, %v", left, err)
	}

	// Squashing keeps what it was made of, Reset forgets it.
	b.write("/b", "later")
	must(t, b.Freeze())
	b.write("/c", "later")
	must(t, b.Drop("/c"))
	lineage, err = LineageOf(b.dir)
	if err != nil || !slices.Equal(lineage.Parents, []string{merged}) || len(lineage.Earlier) != 2 || !slices.Contains(lineage.Earlier, below) {
		t.Errorf("squashed it was made of %q, %v", lineage, err)
	}
	must(t, b.Reset())
	if lineage, err = LineageOf(b.dir); err != nil || len(lineage.Parents)+len(lineage.Earlier) > 0 {
		t.Errorf("reset it was made of %q, %v", lineage, err)
	}
}

// A head that replaces an empty one was made of the same layers, and of those of its own.
func TestANextHeadKeepsTheLineageOfTheOneBefore(t *testing.T) {
	b := newBench(t, map[string]string{"a": "source"})
	b.write("/a", "first")
	was, err := b.Stack.Freeze()
	must(t, err)
	b.write("/b", "later")
	must(t, b.Drop("/a", "/b")) // squashes: the head is empty, and was made of the layer
	b.close()
	const before, now = "ly_0000000000000001", "ly_0000000000000002"
	for _, name := range []string{before, now} {
		must(t, os.MkdirAll(filepath.Join(b.o.Store, name, "top"), 0o700))
	}
	for _, merged := range []string{before, now, ""} {
		h, err := PrepareHead(b.o.Store, "", merged)
		must(t, err)
		must(t, h.Put(b.dir))
	}
	lineage, err := LineageOf(b.dir)
	if want := (Lineage{Parents: []string{before, now}, Earlier: []string{was}}); err != nil || !cmp.Equal(lineage, want) {
		t.Errorf("it was made of %+v, %v, want %+v", lineage, err, want)
	}
}

// A record is copied with its content, whatever its size and wherever it was kept.
func TestABaseIsCopiedWithItsContent(t *testing.T) {
	long := string(slices.Repeat([]byte("long\n"), 10_000))
	from := newBench(t, map[string]string{"short": "short", "long": long, "empty": ""})
	to := newBench(t, nil)
	for _, name := range []string{"/short", "/long", "/empty"} {
		from.write(name, "changed")
	}
	bases, err := from.Bases()
	must(t, err)
	for p, base := range bases {
		must(t, to.CopyBase(p, from.Stack, &base))
	}
	from.close()
	to.reopen()
	bases, err = to.Bases()
	must(t, err)
	for name, want := range map[string]string{"short": "short", "long": long, "empty": ""} {
		base := bases[vpath.Root.Child(name)]
		f, err := to.BaseContent(&base)
		must(t, err)
		got, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(got) != want {
			t.Errorf("%s has a base of %d bytes, %v", name, len(got), err)
		}
	}
}

// A file is filled with the content of another one, and holes stay holes.
func TestFillKeepsHoles(t *testing.T) {
	b := newBench(t, nil)
	path := filepath.Join(t.TempDir(), "sparse")
	must(t, os.WriteFile(path, []byte("begin"), 0o600))
	must(t, os.Truncate(path, 64<<20))
	src, err := os.Open(path)
	must(t, err)
	defer src.Close()
	f, _, err := b.Create("/sparse", 0o600)
	must(t, err)
	defer f.Close()
	must(t, f.Fill(src, 64<<20))
	i, err := f.Stat()
	head := make([]byte, 6)
	_, readErr := f.ReadAt(head, 0)
	if err != nil || readErr != nil || i.Size != 64<<20 || i.Blocks > 1<<10 || string(head) != "begin\x00" {
		t.Errorf("%d bytes in %d blocks, %q, %v, %v", i.Size, i.Blocks, head, err, readErr)
	}
}
