package layer

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestChanges(t *testing.T) {
	source := map[string]string{"a": "1", "b": "2", "dir/c": "3", "dir/sub/d": "4"}
	tests := []struct {
		name string
		do   func(b *bench)
		want []string
	}{
		{"nothing", func(*bench) {}, nil},
		{"reading is no change", func(b *bench) { b.read("/a") }, nil},
		{"the way to a change is no change", func(b *bench) { b.write("/dir/sub/d", "x") }, []string{"m /dir/sub/d"}},
		{"a created tree", func(b *bench) { b.mkdir("/new"); b.write("/new/f", "") }, []string{"c /new", "c /new/f"}},
		{"made and removed again", func(b *bench) { b.write("/new", ""); b.unlink("/new") }, nil},
		{"removed and made again", func(b *bench) { b.unlink("/a"); b.write("/a", "1") }, []string{"m /a"}},
		{"a file moved", func(b *bench) { b.rename("/a", "/z") }, []string{"d /a", "c /z"}},
		{"a mode", func(b *bench) { _, _ = b.SetAttr("/dir", SetAttr{Mode: new(uint32(0o700))}) }, []string{"m /dir"}},
		{"the root's mode", func(b *bench) { _, _ = b.SetAttr("/", SetAttr{Mode: new(uint32(0o700))}) }, []string{"m /"}},
		{
			"a directory made again keeps its fate", func(b *bench) { b.removeAll("/dir"); b.mkdir("/dir") },
			[]string{"d /dir/c", "d /dir/sub", "d /dir/sub/d"},
		},
		{
			"a directory replaced by a file", func(b *bench) { b.removeAll("/dir"); b.write("/dir", "x") },
			[]string{"m /dir", "d /dir/c", "d /dir/sub", "d /dir/sub/d"},
		},
		{"a file replaced by a directory", func(b *bench) { b.unlink("/a"); b.mkdir("/a"); b.write("/a/b", "") }, []string{"m /a", "c /a/b"}},
		{"the user deleted it too", func(b *bench) { b.unlink("/a"); must(b.t, os.Remove(b.src("a"))) }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, source)
			tt.do(b)
			b.reopen()
			if got := b.changes(); !slices.Equal(got, tt.want) && len(got)+len(tt.want) > 0 {
				t.Errorf("changes = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUntouched(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1"})
	check := func(when string, want bool) {
		t.Helper()
		got, err := b.IsUntouched()
		must(t, err)
		if got != want {
			t.Errorf("%s: untouched = %t", when, got)
		}
	}
	b.read("/a")
	check("at first", true)
	b.write("/new", "")
	check("with a new file", false)
	b.unlink("/new")
	check("once it is gone", true)
	b.unlink("/a")
	check("with a deletion", false)
	b.reopen()
	check("with a deletion, later", false)
	b.write("/a", "1")
	check("with a file made again", false)
}

func TestTheRootsModeCounts(t *testing.T) {
	b := newBench(t, nil)
	_, err := b.SetAttr("/", SetAttr{Mode: new(uint32(0o700))})
	must(t, err)
	b.reopen()
	if untouched, err := b.IsUntouched(); untouched || err != nil {
		t.Errorf("untouched = %t, %v", untouched, err)
	}
}

func TestTheSourceIsCompared(t *testing.T) {
	b := newBench(t, map[string]string{"file": "1", "dir/x": "", "gone": ""})
	must(t, os.Symlink("one", b.src("link")))
	b.unlink("/file")
	b.unlink("/gone")
	b.rename("/link", "/moved")
	b.write("/dir/new", "")
	match := func(p vpath.Path) bool {
		base, err := b.Base(p)
		must(t, err)
		if base == nil {
			base = &Base{Absent: true}
		}
		ok, err := b.SourceMatches(p, base)
		must(t, err)
		return ok
	}
	for _, p := range []vpath.Path{"/file", "/gone", "/link", "/dir", "/dir/new"} {
		if !match(p) {
			t.Errorf("the untouched source differs at %s", p)
		}
	}
	must(t, os.WriteFile(b.src("file"), []byte("2"), 0o644))
	must(t, os.Remove(b.src("gone")))
	must(t, os.Remove(b.src("link")))
	must(t, os.Symlink("two", b.src("link")))
	must(t, os.Chmod(b.src("dir"), 0o700))
	must(t, os.WriteFile(b.src("dir/new"), nil, 0o644))
	for _, p := range []vpath.Path{"/file", "/gone", "/link", "/dir", "/dir/new"} {
		if match(p) {
			t.Errorf("the changed source matches at %s", p)
		}
	}
}

func TestDropTakesBackExactlyWhatItIsTold(t *testing.T) {
	files := map[string]string{"dir/a": "1", "dir/b": "2", "dir/sub/c": "3", "file": "4"}
	tests := []struct {
		name  string
		do    func(b *bench)
		drop  []vpath.Path
		want  []string
		shows []string // of /dir
	}{
		{
			"one of two changes", func(b *bench) { b.write("/dir/a", "x"); b.write("/file", "y") },
			[]vpath.Path{"/file"},
			[]string{"m /dir/a"},
			[]string{"a", "b", "sub"},
		},
		{
			"one file of a deleted directory", func(b *bench) { b.removeAll("/dir") },
			[]vpath.Path{"/dir/a"},
			[]string{"d /dir/b", "d /dir/sub", "d /dir/sub/c"},
			[]string{"a"},
		},
		{
			"a deep file of a deleted directory", func(b *bench) { b.removeAll("/dir") },
			[]vpath.Path{"/dir/sub/c"},
			[]string{"d /dir/a", "d /dir/b"},
			[]string{"sub"},
		},
		{
			"the deleted directory alone", func(b *bench) { b.removeAll("/dir") },
			[]vpath.Path{"/dir"},
			[]string{"d /dir/a", "d /dir/b", "d /dir/sub", "d /dir/sub/c"},
			nil,
		},
		{
			"one file of a directory made again", func(b *bench) { b.removeAll("/dir"); b.mkdir("/dir"); b.write("/dir/n", "") },
			[]vpath.Path{"/dir/b"},
			[]string{"d /dir/a", "c /dir/n", "d /dir/sub", "d /dir/sub/c"},
			[]string{"b", "n"},
		},
		{
			"a path that is not changed", func(b *bench) { b.write("/dir/a", "x") },
			[]vpath.Path{"/dir/b", "/no/such"},
			[]string{"m /dir/a"},
			[]string{"a", "b", "sub"},
		},
		{"a mode while its content stays", func(b *bench) {
			_, _ = b.SetAttr("/dir", SetAttr{Mode: new(uint32(0o700))})
			b.write("/dir/a", "x")
		}, []vpath.Path{"/dir"}, []string{"m /dir/a"}, []string{"a", "b", "sub"}},
	}
	for _, tt := range tests {
		for _, freeze := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				b := newBench(t, files)
				tt.do(b)
				if freeze {
					must(t, b.Freeze())
				}
				must(t, b.Drop(tt.drop...))
				b.reopen()
				if got := b.changes(); !slices.Equal(got, tt.want) {
					t.Errorf("changes = %q, want %q", got, tt.want)
				}
				if got := b.names("/dir"); !slices.Equal(got, tt.shows) && len(got)+len(tt.shows) > 0 {
					t.Errorf("/dir shows %q, want %q", got, tt.shows)
				}
			})
		}
	}
}

func TestDropIfLeavesNoMomentForAWrite(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "1", "c": "1"})
	b.write("/a", "2")
	b.write("/b", "2")
	b.unlink("/c")
	f, _, err := b.Open("/a", true)
	must(t, err)
	defer f.Close()
	looked := map[vpath.Path]bool{} // found
	kept, err := b.DropMatching(func(p vpath.Path, i Info, err error) bool {
		_, writeErr := f.WriteAt([]byte("x"), 0)
		wantErr(t, "a write while it is decided", writeErr, unix.ESTALE)
		looked[p] = err == nil && i.Origin == Delta
		return p != "/b"
	}, nil, "/a", "/b", "/c")
	must(t, err)
	if want := map[vpath.Path]bool{"/a": true, "/b": true, "/c": false}; !maps.Equal(looked, want) {
		t.Errorf("looked at %v, want %v", looked, want)
	}
	if got, want := b.changes(), []string{"m /b"}; !slices.Equal(kept, []vpath.Path{"/b"}) || !slices.Equal(got, want) {
		t.Errorf("kept %q, changes %q, want /b alone", kept, got)
	}
}

// A process that is killed during a drop has removed changes from the delta, but the log
// still records their bases.
func TestADropThatWasKilledHasDroppedSome(t *testing.T) {
	b := newBench(t, map[string]string{"d/one": "1", "d/two": "2", "gone": "g"})
	b.write("/d/one", "one")
	b.write("/d/two", "two")
	b.unlink("/gone")
	log, err := os.ReadFile(filepath.Join(b.dir, logName))
	must(t, err)
	log = bytes.TrimRight(log, "\x00") // the preallocated zeros
	must(t, b.Drop("/d/one", "/gone"))
	b.changeLog(func(after []byte) []byte {
		if !bytes.HasPrefix(after, log) || len(after) == len(log) {
			t.Error("the drop is not recorded behind what was there")
		}
		return log
	})
	if got := b.changes(); !slices.Equal(got, []string{"m /d/two"}) {
		t.Errorf("changes = %q", got)
	}
	must(t, os.WriteFile(b.src("d/one"), []byte("later"), 0o644))
	b.write("/d/one", "again")
	if got := b.baseText("/d/one"); got != "later" {
		t.Errorf("the base is %q, want what the source has by now", got)
	}
	b.write("/gone", "back")
	must(t, b.Drop("/d/one", "/d/two", "/gone"))
	b.reopen()
	if got := b.changes(); len(got) > 0 {
		t.Errorf("changes after dropping all: %q", got)
	}
}

func TestDropAfterApplying(t *testing.T) {
	b := newBench(t, map[string]string{"dir/a": "1"})
	b.write("/dir/a", "2")
	b.mkdir("/new")
	b.write("/new/kept", "conflict")
	b.write("/new/done", "applied")
	f, _, err := b.Open("/dir/a", true)
	must(t, err)
	defer f.Close()

	must(t, os.WriteFile(b.src("dir/a"), []byte("2"), 0o644))
	must(t, os.Mkdir(b.src("new"), 0o755))
	must(t, os.WriteFile(b.src("new/done"), []byte("applied"), 0o644))
	must(t, b.Drop("/dir/a", "/new", "/new/done"))
	_, err = f.WriteAt([]byte("x"), 0)
	wantErr(t, "write to a file that was dropped", err, unix.ESTALE)
	if got, want := b.changes(), []string{"c /new/kept"}; !slices.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
	must(t, os.WriteFile(b.src("dir/a"), []byte("the user's"), 0o644))
	if got := b.read("/dir/a") + b.read("/new/done"); got != "the user'sapplied" {
		t.Errorf("the view reads %q", got)
	}
}

func TestASecondOpenerReadsBesideAWriter(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "gone": ""})
	o := b.o
	o.ReadOnly = true
	early := &bench{t: t}
	var err error
	early.Stack, err = Open(o)
	must(t, err)
	defer early.Stack.Close()
	b.write("/a", "2")
	b.unlink("/gone")
	b.mkdir("/dir")
	b.write("/dir/new", "3")
	b.rename("/dir", "/moved")
	if got, want := early.changes(), []string{"m /a", "d /gone", "c /moved", "c /moved/new"}; !slices.Equal(got, want) {
		t.Errorf("the reader sees %q, want %q", got, want)
	}
	if got := early.read("/moved/new"); got != "3" {
		t.Errorf("the reader reads %q", got)
	}
	f, err := early.OpenDelta("/a")
	must(t, err)
	f.Close()
	if _, err := early.OpenDelta("/absent"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("OpenDelta of nothing: %v", err)
	}
	for what, err := range map[string]error{
		"drop": early.Drop("/a"), "dropAll": early.Reset(), "freeze": early.Freeze(),
		"rmdir": early.Rmdir("/moved", nil), "mkdir": second(early.Mkdir("/x", 0)), "copy up": second(early.CopyUp("/a")),
		"unlink": second(early.Unlink("/a", false)), "rename": second(early.Rename("/a", "/b", RenameOptions{})),
		"root": second(early.SetAttr("/", SetAttr{Mode: new(uint32(0))})), "orphan": second(early.CreateOrphan(0)),
		"chmod": second(early.SetAttr("/a", SetAttr{Mode: new(uint32(0))})),
	} {
		wantErr(t, what+" by a reader", err, unix.EROFS)
	}
}

func TestAReaderOfNothingSeesTheSource(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1"})
	b.close()
	must(t, os.RemoveAll(b.dir))
	must(t, os.Mkdir(b.dir, 0o700))
	b.o.ReadOnly = true
	b.open()
	if got := b.read("/a"); got != "1" || len(b.changes()) != 0 {
		t.Errorf("it reads %q and changes %q", got, b.changes())
	}
}

func second[T any](_ T, err error) error { return err }
