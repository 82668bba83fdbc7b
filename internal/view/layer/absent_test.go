package layer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// newLeaving makes a bench with a source of which Options.Absent hides entries: those
// called "out", and directories called "dir".
func newLeaving(t *testing.T, files map[string]string) *bench {
	t.Helper()
	return newBench(t, files, func(o *Options) {
		o.Absent = func(p vpath.Path, isDir bool) bool { return p.Base() == "out" || isDir && p.Base() == "dir" }
	})
}

func TestWhatIsLeftOutIsNotThere(t *testing.T) {
	b := newLeaving(t, map[string]string{"out": "1", "in": "2", "dir/f": "3", "a/out": "4", "a/dir": "a file", "a/b": "5"})
	for _, p := range []vpath.Path{"/out", "/dir", "/dir/f", "/a/out"} {
		if _, err := b.Lookup(p); !errdefs.Is(err, errdefs.NotFound) {
			t.Errorf("Lookup(%s) = %v, want NotFound", p, err)
		}
		if f, _, err := b.Open(p, false); !errdefs.Is(err, errdefs.NotFound) {
			f.Close()
			t.Errorf("Open(%s) = %v, want NotFound", p, err)
		}
	}
	if _, err := b.ReadDir("/dir"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("ReadDir = %v, want NotFound", err)
	}
	for p, want := range map[string][]string{"/": {"a", "in"}, "/a": {"b", "dir"}} {
		if got := b.names(p); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", p, got, want)
		}
	}
	if _, err := b.SourceInfo("/out"); err != nil {
		t.Errorf("the source itself has it: %v", err)
	}
	if got, err := b.Changes(); len(got) != 0 || err != nil {
		t.Errorf("changes %v, %v", got, err)
	}
}

func TestSomethingIsMadeInPlaceOfWhatIsLeftOut(t *testing.T) {
	b := newLeaving(t, map[string]string{"out": "1", "dir/f": "3", "dir/d/g": "4", "a/out": "5"})
	f, _, err := b.Create("/out", 0o644)
	must(t, err)
	must(t, f.Close())
	_, err = b.Mkdir("/dir", 0o755)
	must(t, err)
	if got := b.names("/dir"); len(got) != 0 {
		t.Errorf("the new directory shows %q of the source's", got)
	}
	_, err = b.Mkdir("/dir/d", 0o755)
	must(t, err)
	changes, err := b.Changes()
	must(t, err)
	var got []string
	for _, c := range changes {
		if c.Kind != Created || c.Base == nil || !c.Base.Absent {
			t.Errorf("%s is %v of %v, want created", c.Path, c.Kind, c.Base)
		}
		if fresh, err := b.SourceMatches(c.Path, c.Base); fresh || err != nil {
			t.Errorf("%s: the source matches nothing: %v, %v", c.Path, fresh, err)
		}
		got = append(got, c.Path.String())
	}
	if want := []string{"/dir", "/dir/d", "/out"}; !slices.Equal(got, want) {
		t.Errorf("changes at %q, want %q", got, want)
	}
	b.reopen()
	if got := b.names("/"); !slices.Equal(got, []string{"a", "dir", "out"}) {
		t.Errorf("after a restart there is %q", got)
	}
	b.unlink("/out")
	if _, err := b.Lookup("/out"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("removed, it is %v", err)
	}
}

// TestStackBehavesAsIfWhatIsLeftOutWereNotThere compares a stack that hides entries with a
// stack over a copy of the source without them.
func TestStackBehavesAsIfWhatIsLeftOutWereNotThere(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := newModel(t, rt, filepath.Join(base, fmt.Sprint(n)))
		for _, left := range plainTree(t, m.plain) {
			if filepath.Base(left.Path) == "b" {
				must(t, os.RemoveAll(filepath.Join(m.plain, left.Path)))
			}
		}
		m.b.o.Absent = func(p vpath.Path, _ bool) bool { return p.Base() == "b" }
		m.b.open()
		defer m.b.close()
		rt.Repeat(map[string]func(*rapid.T){
			"":          m.check,
			"create":    m.create,
			"mkdir":     m.mkdir,
			"symlink":   m.symlink,
			"link":      m.link,
			"write":     m.write,
			"truncate":  m.truncate,
			"unlink":    m.unlink,
			"rmdir":     m.rmdir,
			"removeAll": m.removeAll,
			"rename":    m.rename,
			"exchange":  m.exchange,
			"reopen":    func(*rapid.T) { m.b.reopen() },
			"freeze":    m.freeze,
		})
	})
}

func TestADirectoryOfWhatIsLeftOutIsEmpty(t *testing.T) {
	b := newLeaving(t, map[string]string{"a/out": "1", "b/out": "1", "b/f": "2"})
	must(t, b.Rmdir("/a", nil))
	wantErr(t, "rmdir of one that is not", b.Rmdir("/b", nil), unix.ENOTEMPTY)
	changes, err := b.Changes()
	must(t, err)
	for _, c := range changes {
		if known := c.Base != nil; known != (c.Path == "/a") {
			t.Errorf("%s has base %v: only what was seen has one", c.Path, c.Base)
		}
	}
}

func TestAnAdoptedEntryIsMadeOfTheSources(t *testing.T) {
	b := newLeaving(t, map[string]string{"out": "same", "a/out": "theirs"})
	b.put("/out", "same")
	b.put("/a/out", "mine")
	_, err := b.Symlink("x", "/dir")
	must(t, err)
	for _, p := range []vpath.Path{"/out", "/a/out", "/dir"} {
		must(t, b.Rebase(p))
	}
	if err := b.Rebase("/nothing"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Rebase of nothing = %v, want NotFound", err)
	}
	changes, err := b.Changes()
	must(t, err)
	for _, c := range changes {
		fresh, err := b.SourceMatches(c.Path, c.Base)
		if want := c.Path != "/a/out"; fresh != want || err != nil {
			t.Errorf("%s is made of what the source has: %v, %v, want %v", c.Path, fresh, err, want)
		}
		if adopted := c.Kind == Modified; adopted != (c.Path == "/out") {
			t.Errorf("%s is %v", c.Path, c.Kind)
		}
	}
	if len(changes) != 3 {
		t.Errorf("changes %v", changes)
	}
}

// put makes a file.
func (b *bench) put(p vpath.Path, content string) {
	b.t.Helper()
	f, _, err := b.Create(p, 0o644)
	must(b.t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(b.t, err)
	must(b.t, f.Close())
}
