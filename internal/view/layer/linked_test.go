package layer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
