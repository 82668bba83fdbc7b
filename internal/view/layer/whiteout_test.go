package layer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhiteoutsAreNamesOfOneFile(t *testing.T) {
	b := newBench(t, map[string]string{"a": "", "b": "", "dir/c": "", "d": "", "e": ""})
	for _, p := range []string{"/a", "/b", "/dir/c"} {
		b.unlink(p)
	}
	first, err := os.Stat(b.top(".wh.a"))
	must(t, err)
	for _, p := range []string{".wh.b", "dir/.wh.c"} {
		if i, err := os.Stat(b.top(p)); err != nil || !os.SameFile(first, i) || i.Size() != 0 {
			t.Errorf("%s is another file than .wh.a, or not empty: %v", p, err)
		}
	}
	b.reopen()
	b.unlink("/d")
	b.write("/a", "again")
	b.unlink("/a")
	must(t, b.Drop("/b"))
	if got, want := b.names("/"), []string{"b", "dir", "e"}; !slices.Equal(got, want) {
		t.Errorf("the view has %q, want %q", got, want)
	}
	if got, want := b.changes(), []string{"d /a", "d /d", "d /dir/c"}; !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
}

func TestWhiteoutsDoWithoutLinks(t *testing.T) {
	b := newBench(t, map[string]string{"a": "", "b": "", "c": ""})
	b.unlink("/a")
	must(t, os.Remove(filepath.Join(b.dir, "work", b.blank))) // as if it could have no more links
	b.unlink("/b")
	b.unlink("/c")
	if got := b.names("/"); len(got) != 0 {
		t.Errorf("the view has %q", got)
	}
}
