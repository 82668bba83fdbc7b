package layer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestLinkedTellsTheNamesOfFilesThatHaveSeveral(t *testing.T) {
	b := newBench(t, map[string]string{"source": "s"})
	for _, p := range []string{"/one", "/frozen", "/orphaned", "/alone"} {
		b.write(p, p)
	}
	link := func(old, p vpath.Path) {
		t.Helper()
		_, err := b.Link(old, p)
		must(t, err)
	}
	link("/frozen", "/also frozen")
	must(t, b.Freeze())
	link("/one", "/.wh.two")
	b.mkdir("/dir")
	link("/source", "/dir/copy")
	link("/orphaned", "/removed")
	o, err := b.Unlink("/removed", true)
	must(t, err)
	defer o.Forget()

	linked, err := b.Linked()
	must(t, err)
	got := map[string][]string{}
	for id, names := range linked {
		for _, name := range names {
			if i := b.lookup(string(name)); i.ID != id {
				t.Errorf("%s is %v, listed as %v", name, i.ID, id)
			}
		}
		words := make([]string, len(names))
		for i, name := range names {
			words[i] = string(name)
		}
		words = sorted(words)
		got[words[0]] = words
	}
	want := map[string][]string{
		"/.wh.two":     {"/.wh.two", "/one"},
		"/also frozen": {"/also frozen", "/frozen"},
		"/dir/copy":    {"/dir/copy", "/source"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("linked (-want +got):\n%s", diff)
	}
}

// TestALinkIsFoundAfterNone checks that Linked does not rely on what it found before a link.
func TestALinkIsFoundAfterNone(t *testing.T) {
	b := newBench(t, nil)
	b.write("/a", "a")
	found := func(want int) {
		t.Helper()
		for range 2 {
			if linked, err := b.Linked(); err != nil || len(linked) != want {
				t.Errorf("linked: %v, %v, want %d", linked, err, want)
			}
		}
	}
	found(0)
	_, err := b.Link("/a", "/b")
	must(t, err)
	found(1)
	must(t, b.Freeze())
	found(1)
	_, err = b.Unlink("/b", false)
	must(t, err)
	found(0)
	b.reopen()
	_, err = b.Link("/a", "/c")
	must(t, err)
	found(1)
}

// TestLinkedFollowsEveryChange makes random changes, most of them with links, and compares the
// names that Linked has followed with those that a visit of all layers finds.
func TestLinkedFollowsEveryChange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, map[string]string{"a": "a", "d/a": "d/a", "d/b": "d/b"})
		defer b.close()
		var orphans []*Orphan
		defer func() {
			for _, o := range orphans {
				o.Forget()
			}
		}()
		path := func(name string) vpath.Path {
			return rapid.SampledFrom([]vpath.Path{"/a", "/b", "/c", "/d", "/e", "/d/a", "/d/b", "/d/d", "/d/d/a", "/e/a", "/e/b"}).Draw(rt, name)
		}
		change := func(do func(old, p vpath.Path) error) func(*rapid.T) {
			return func(*rapid.T) {
				_ = do(path("old"), path("new")) // many of these are refused
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"link":  change(func(old, p vpath.Path) error { _, err := b.Link(old, p); return err }),
			"link2": change(func(old, p vpath.Path) error { _, err := b.Link(old, p); return err }),
			"mkdir": change(func(_, p vpath.Path) error { _, err := b.Mkdir(p, 0o755); return err }),
			"over":  change(func(_, p vpath.Path) error { _, err := b.MkdirOver(p, 0o755); return err }),
			"rmdir": change(func(_, p vpath.Path) error { return b.Rmdir(p, nil) }),
			"create": change(func(_, p vpath.Path) error {
				f, _, err := b.Create(p, 0o644)
				if err == nil {
					f.Close()
				}
				return err
			}),
			"write": change(func(_, p vpath.Path) error { return b.openToWrite(p) }),
			"unlink": change(func(_, p vpath.Path) error {
				o, err := b.Unlink(p, rapid.Bool().Draw(rt, "keep"))
				if o != nil {
					orphans = append(orphans, o)
				}
				return err
			}),
			"linkOrphan": change(func(_, p vpath.Path) error {
				if len(orphans) == 0 {
					return nil
				}
				_, err := b.LinkOrphan(orphans[len(orphans)-1], p)
				return err
			}),
			"rename": change(func(old, p vpath.Path) error {
				o, err := b.Rename(old, p, RenameOptions{KeepReplaced: rapid.Bool().Draw(rt, "keep")})
				if o != nil {
					orphans = append(orphans, o)
				}
				return err
			}),
			"exchange": change(func(old, p vpath.Path) error {
				_, err := b.Rename(old, p, RenameOptions{Exchange: true})
				return err
			}),
			"freeze": func(*rapid.T) { must(t, b.Freeze()) },
			"drop":   change(func(old, p vpath.Path) error { return b.Drop(old, p) }),
			"reset":  func(*rapid.T) { must(t, b.Reset()) },
			"look":   func(*rapid.T) { sameLinks(rt, b.Stack) },
		})
		sameLinks(rt, b.Stack)
	})
}

// sameLinks compares the names that Linked has followed with those that a visit of all layers
// finds.
func sameLinks(t rapid.TB, s *Stack) {
	t.Helper()
	got, err := s.Linked()
	if err != nil {
		t.Fatal(err)
	}
	var all links
	if err := s.findLinks(&all); err != nil {
		t.Fatal(err)
	}
	want := all.linked()
	for _, linked := range []map[FileID][]vpath.Path{got, want} {
		for _, names := range linked {
			slices.Sort(names)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("linked (-all +followed):\n%s", diff)
	}
}

// TestLinkedVisitsTheDeltaOnce checks that Linked follows links without another visit, within the
// bounds of links.
func TestLinkedVisitsTheDeltaOnce(t *testing.T) {
	b := newBench(t, nil)
	b.mkdir("/dir")
	b.write("/dir/a", "a")
	sameLinks(t, b.Stack)
	known := func(want bool) {
		t.Helper()
		if b.links.known != want {
			t.Errorf("the links are known: %t, want %t", b.links.known, want)
		}
		sameLinks(t, b.Stack)
	}
	link := func(old, p vpath.Path) {
		t.Helper()
		_, err := b.Link(old, p)
		must(t, err)
	}
	link("/dir/a", "/dir/b")
	b.rename("/dir", "/moved")
	b.rename("/moved/a", "/a")
	b.write("/other", "")
	b.unlink("/other")
	must(t, b.Freeze())
	known(true)
	for i := range maxMovedLinks {
		link("/a", vpath.Path(fmt.Sprintf("/moved/%d", i)))
	}
	b.rename("/moved", "/dir")
	known(false)
	for i := range maxChangedLinks + 1 {
		link("/a", vpath.Path(fmt.Sprintf("/link%d", i)))
	}
	known(false)
	must(t, b.Drop("/a"))
	known(false)
}

// TestLinkedFollowsWhatIsRare has the changes that random ones seldom make.
func TestLinkedFollowsWhatIsRare(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, b *bench){
		"a directory hides a name of a frozen file": func(t *testing.T, b *bench) {
			must(t, b.Freeze())
			_, err := b.MkdirOver("/b", 0o755)
			must(t, err)
		},
		"an orphan gets another name": func(t *testing.T, b *bench) {
			o, err := b.Unlink("/b", true)
			must(t, err)
			sameLinks(t, b.Stack)
			_, err = b.LinkOrphan(o, "/c")
			must(t, err)
		},
		"a frozen file is copied up": func(t *testing.T, b *bench) {
			must(t, b.Freeze())
			sameLinks(t, b.Stack)
			must(t, b.openToWrite("/a"))
		},
		"the changes are dropped": func(t *testing.T, b *bench) { must(t, b.Drop("/b")) },
		"many layers become one": func(t *testing.T, b *bench) {
			for i := range maxFrozenLive + 2 {
				b.write(fmt.Sprint("/other", i), "")
				must(t, b.Freeze())
				sameLinks(t, b.Stack)
			}
		},
		"all layers become one": func(t *testing.T, b *bench) {
			must(t, b.Freeze())
			sameLinks(t, b.Stack)
			must(t, b.Drop("/none"))
		},
		"everything is dropped": func(t *testing.T, b *bench) { must(t, b.Reset()) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.write("/a", "a")
			_, err := b.Link("/a", "/b")
			must(t, err)
			sameLinks(t, b.Stack)
			change(t, b)
			sameLinks(t, b.Stack)
		})
	}
}
