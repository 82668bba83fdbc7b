package layer

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// ownIn is the path of the own entry name in the directory dir.
func ownIn(dir, name string) string { return string(vpath.Path(dir).Child(vpath.OwnName(name))) }

// ownNames are names of own entries: a plain one, some that imitate stored names, and some
// with a hashed stored name.
var ownNames = []string{
	"k.pem", ".wh.k.pem", ".wh..wh.@k.pem", ".wh..wh.!k.pem", ".wh..wh..opq", "\xff\n",
	strings.Repeat("n", vpath.NameMax), ".wh." + strings.Repeat("n", vpath.NameMax-4), strings.Repeat("n", vpath.NameMax-9) + "m",
}

// ownBench has a source with a file of each name, and an own file beside each.
func ownBench(t *testing.T) *bench {
	files := map[string]string{"a": "source", "d/b": "source"}
	for _, name := range ownNames {
		files[name] = "source"
	}
	b := newBench(t, files)
	for _, name := range ownNames {
		b.write(ownIn("/", name), "own")
	}
	return b
}

// wantOwn checks, before and after a reopen, that each own file contains want and that the
// plain name shows the source's file.
func wantOwn(t *testing.T, b *bench, want string) {
	t.Helper()
	for range 2 {
		for _, name := range ownNames {
			if got := b.read(ownIn("/", name)); got != want {
				t.Errorf("the own entry %q holds %q, want %q", name, got, want)
			}
			if got := b.read(string(vpath.Root.Child(name))); got != "source" {
				t.Errorf("%q of the source reads %q", name, got)
			}
		}
		listed := b.names("/")
		for _, name := range ownNames {
			if !slices.Contains(listed, vpath.OwnName(name)) || !slices.Contains(listed, name) {
				t.Errorf("the list lacks the own entry %q, or the source's: %q", name, listed)
			}
		}
		if len(listed) != 2*len(ownNames)+2 {
			t.Errorf("the list has %d names: %q", len(listed), listed)
		}
		b.reopen()
	}
}

// wantNoOwn checks that no own entry is left and that the source's files show and count as
// unchanged.
func wantNoOwn(t *testing.T, b *bench) {
	t.Helper()
	for range 2 {
		for _, name := range ownNames {
			if _, err := b.Lookup(vpath.Path(ownIn("/", name))); err == nil {
				t.Errorf("the own entry %q is still there", name)
			}
			if got := b.read(string(vpath.Root.Child(name))); got != "source" {
				t.Errorf("%q of the source reads %q", name, got)
			}
		}
		if got := b.changes(); len(got) != 0 {
			t.Errorf("changes: %q", got)
		}
		b.reopen()
	}
}

func TestOwnEntriesSurviveARestartAFreezeAndASquash(t *testing.T) {
	b := ownBench(t)
	wantOwn(t, b, "own")
	must(t, b.Freeze())
	wantOwn(t, b, "own")
	for _, name := range ownNames {
		b.write(ownIn("/", name), "again")
	}
	wantOwn(t, b, "again")
	must(t, b.Freeze())
	b.write("/a", "changed")
	must(t, b.Drop("/a")) // squashes first
	if frozen, err := Below(b.dir); err != nil || frozen != "" {
		t.Errorf("a frozen layer is left: %v, %v", frozen, err)
	}
	wantOwn(t, b, "again")
	for _, c := range b.changes() {
		if !strings.Contains(c, "\x00") || !strings.HasPrefix(c, "c ") {
			t.Errorf("a change that is not of an own entry: %q", c)
		}
	}
}

func TestRemovingOwnEntriesLeavesTheSources(t *testing.T) {
	for _, tt := range []struct {
		name           string
		freeze, squash bool
	}{{"of the delta", false, false}, {"of a frozen layer", true, false}, {"of a frozen layer, squashed", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			b := ownBench(t)
			if tt.freeze {
				must(t, b.Freeze())
			}
			for _, name := range ownNames {
				b.unlink(ownIn("/", name))
			}
			if tt.squash {
				b.write("/a", "changed")
				must(t, b.Drop("/a"))
			}
			wantNoOwn(t, b)
			if left, err := os.ReadDir(b.top("")); err != nil || !tt.freeze && len(left) != 0 || tt.squash && len(left) != 0 {
				t.Errorf("the delta still holds %v, %v", left, err)
			}
			// Made again above its own whiteout, an own directory shows nothing of before.
			for _, name := range ownNames {
				b.mkdir(ownIn("/", name))
				if got := b.names(ownIn("/", name)); len(got) != 0 {
					t.Errorf("%q made again holds %q", name, got)
				}
			}
		})
	}
}

func TestOwnDirectoriesShowNothingOfTheSource(t *testing.T) {
	b := newBench(t, map[string]string{"s/x": "source", "s/sub/y": "source"})
	dir := ownIn("/", "s")
	b.mkdir(dir)
	b.mkdir(dir + "/sub")
	b.write(dir+"/x", "own")
	must(t, b.Freeze())
	b.removeAll(dir + "/sub")
	b.mkdir(dir + "/sub")
	for range 2 {
		if got := b.names(dir + "/sub"); len(got) != 0 || b.read(dir+"/x") != "own" {
			t.Errorf("the own directory shows %q and %q", got, b.read(dir+"/x"))
		}
		b.reopen()
	}
	must(t, b.Drop(vpath.Path(dir+"/sub"))) // a part of it
	if got := b.names(dir); !slices.Equal(got, []string{"x"}) {
		t.Errorf("after a part was dropped the own directory shows %q", got)
	}
	must(t, b.Drop(vpath.Path(dir+"/x"), vpath.Path(dir)))
	if got := b.changes(); len(got) != 0 || !slices.Equal(b.names("/s"), []string{"sub", "x"}) {
		t.Errorf("after all was dropped: changes %q, the source's directory shows %q", got, b.names("/s"))
	}
}

func TestWhatIsRecordedAfterADroppedOwnEntryIsKept(t *testing.T) {
	b := newBench(t, map[string]string{"a": "source", "k.pem": "source", "d/b": "source"})
	b.write(ownIn("/", "k.pem"), "own")
	b.write(ownIn("/d", "x.pem"), "own")
	must(t, b.Drop(vpath.Path(ownIn("/", "k.pem")), vpath.Path(ownIn("/d", "x.pem"))))
	b.write("/a", "changed")
	b.unlink("/d/b")
	want := []string{"m /a", "d /d/b"}
	for range 2 {
		if got := b.changes(); !slices.Equal(got, want) {
			t.Fatalf("changes are %q, want %q", got, want)
		}
		b.reopen()
	}
	if got := b.read("/k.pem"); got != "source" {
		t.Errorf("k.pem of the source reads %q", got)
	}
}

// After a crash between two steps, the stack shows the state before the operation or after
// it.
func TestOwnEntriesAreWholeAfterACrashBetweenSteps(t *testing.T) {
	long := strings.Repeat("n", vpath.NameMax)
	name := vpath.OwnName(long)
	stored, _ := nameenc.Entry(name)
	p := ownIn("/", long)
	crash := func(what string, make func(b *bench), there bool) {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, map[string]string{long: "source", "a": "a"})
			make(b)
			b.reopen()
			got, err := readView(b.Stack, vpath.Path(p))
			if there && got != "own" || !there && err == nil {
				t.Errorf("the own entry holds %q, %v", got, err)
			}
			if slices.Contains(b.names("/"), name) != there {
				t.Errorf("it is listed: %v, want %v", !there, there)
			}
			if got := b.read("/" + long); got != "source" {
				t.Errorf("the source's reads %q", got)
			}
			b.write(p, "goes on")
			b.unlink(p)
			if got := b.changes(); len(got) != 0 {
				t.Errorf("changes: %q", got)
			}
		})
	}
	crash("its name was written down and it was not made", func(b *bench) {
		must(t, os.Symlink(nameenc.LinkTarget(name), b.top(nameenc.NameLink(name))))
	}, false)
	crash("it was removed and its name is still written down", func(b *bench) {
		b.write(p, "own")
		must(t, os.Remove(b.top(stored)))
	}, false)
	crash("it was moved away and its name is still written down", func(b *bench) {
		b.write(p, "own")
		must(t, os.Rename(b.top(stored), b.top("moved")))
		b.unlink("/moved")
	}, false)
	crash("it was made and its whiteout is still there", func(b *bench) {
		b.write(p, "frozen")
		must(t, b.Freeze())
		b.unlink(p)
		whiteout, _ := nameenc.Whiteout(name)
		kept, err := os.Readlink(b.top(whiteout))
		must(t, err)
		b.write(p, "own")
		must(t, os.Symlink(kept, b.top(whiteout)))
	}, true)
	crash("the layer was frozen", func(b *bench) {
		b.write(p, "own")
		b.close()
		_, err := FreezeHead(b.dir, b.o.Store)
		must(t, err)
		b.open()
	}, true)
}

// A file in the source with the form of a stored name is an ordinary file.
func TestStoredNamesOfTheSourceAreNames(t *testing.T) {
	b := newBench(t, map[string]string{".wh..wh.@k": "x", ".wh..wh.!k": "x", ".wh.k": "x", ".wh..wh..opq": "x", "k": "k"})
	if got := b.names("/"); len(got) != 5 {
		t.Errorf("the root shows %q", got)
	}
	_, err := b.Lookup(vpath.Path(ownIn("/", "k")))
	wantErr(t, "look up an own entry that only the source's names imitate", err, unix.ENOENT)
	b.write("/.wh..wh.@k", "y")
	b.unlink("/.wh..wh.!k")
	if _, err = b.Lookup(vpath.Path(ownIn("/", "k"))); err == nil || b.read("/k") != "k" {
		t.Errorf("a copied-up name that imitates a stored one acts as that: %v", err)
	}
}
