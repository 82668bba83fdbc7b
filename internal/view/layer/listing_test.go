package layer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// What frozen layers answer from memory is what they answer from the disk: entries, whiteouts,
// directories made again, and names that are stored escaped or by a hash.
func TestListedLayersAnswerAsBefore(t *testing.T) {
	long, longGone := strings.Repeat("l", 255), strings.Repeat("m", 255)
	b := newBench(t, map[string]string{"d/source": "0", "d/gone": "0", "d/back": "0", "d/sub/x": "0", "d/" + longGone: "0"})
	b.write("/d/first", "1")
	b.write("/d/.wh.x", "1")
	b.write("/d/"+long, "1")
	must(t, b.Freeze())
	b.unlink("/d/gone")
	b.unlink("/d/back")
	b.unlink("/d/" + longGone)
	b.removeAll("/d/sub")
	must(t, b.Freeze())
	b.write("/d/back", "3")
	b.mkdir("/d/sub")
	b.write("/d/sub/y", "3")
	b.unlink("/d/first")
	must(t, b.Freeze())

	want := map[string]string{
		"/d/source": "0", "/d/gone": "", "/d/back": "3", "/d/first": "", "/d/.wh.x": "1", "/d/" + long: "1", "/d/" + longGone: "",
		"/d/sub/x": "", "/d/sub/y": "3", "/d/none": "", "/d/.wh.gone": "", "/d/sub/y/z": "",
	}
	check := func(when string) {
		t.Helper()
		for p, content := range want {
			got, err := readView(b.Stack, vpath.Path(p))
			if got != content || content != "" && err != nil {
				t.Errorf("%s: %.20s reads %q, %v, want %q", when, p, got, err, content)
			}
			if content == "" && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("%s: %.20s = %v, want ENOENT", when, p, err)
			}
		}
	}
	for i := range 3 * listAfter {
		check(fmt.Sprint("pass ", i))
	}
	if b.listings.size == len(b.listings.dirs) {
		t.Error("no directory was listed")
	}
	b.write("/d/gone", "4")
	b.write("/d/none", "4")
	b.unlink("/d/source")
	want["/d/gone"], want["/d/none"], want["/d/source"] = "4", "4", ""
	check("changed")
	must(t, b.Freeze())
	for range 2 * listAfter {
		check("frozen")
	}
	b.write("/d/source", "5")
	want["/d/source"] = "5"
	check("made again")
}

// A directory with many names is not listed, and the names of all listed ones are bounded.
func TestListingsAreBounded(t *testing.T) {
	l := listings{}
	b := newBench(t, nil)
	for i := range maxListed + 1 {
		b.write(fmt.Sprintf("/%d", i), "")
	}
	fd := b.layers[top].root
	for range 3 * listAfter {
		if l.lacks(frozenDir{"many", "/"}, fd, "none") {
			t.Fatal("a directory with too many names was listed")
		}
	}
	b.unlink("/0")
	for i := range 3 * maxListings / maxListed {
		for range listAfter + 1 {
			l.lacks(frozenDir{fmt.Sprint(i), "/"}, fd, "none")
		}
		if l.size > maxListings+maxListed {
			t.Fatalf("%d names are kept", l.size)
		}
	}
	if !l.lacks(frozenDir{fmt.Sprint(3*maxListings/maxListed - 1), "/"}, fd, "none") {
		t.Error("the directory that was listed last is forgotten")
	}
}
