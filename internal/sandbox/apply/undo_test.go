package apply_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	sandboxsnapshot "github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

// history is that of the bench's source.
func (b *bench) history() (*history.Source, []history.Entry) {
	b.t.Helper()
	h := history.Open(b.home, b.box.Record().Source)
	entries, err := h.Entries()
	if err != nil {
		b.t.Fatal(err)
	}
	return h, entries
}

// reverse undoes the last apply, or with redo takes the last undo back.
func (b *bench) reverse(redo bool) (undo.Result, error) {
	b.t.Helper()
	h, entries := b.history()
	e, err := undo.Select(entries, redo)
	if err != nil {
		b.t.Fatal(err)
	}
	return undo.Reverse(b.t.Context(), h, e, b.box, undo.Options{})
}

func (b *bench) mustReverse(redo bool) undo.Result {
	b.t.Helper()
	r, err := b.reverse(redo)
	if err != nil {
		b.t.Fatalf("%v: %+v", err, r.Paths)
	}
	return r
}

// shared reports whether two names below dir are one file.
func shared(t *testing.T, dir, one, other string) bool {
	t.Helper()
	return statOf(t, filepath.Join(dir, one)).Ino == statOf(t, filepath.Join(dir, other)).Ino
}

func TestUndoRestoresWhatAFileWasBesides(t *testing.T) {
	b := newBench(t, tree{"f": "old", "gone": "x:old", "linked": "both", "mode": "same", "d/": "", "closed/f": "1", "l": "-> f"})
	if err := os.Link(filepath.Join(b.dir, "linked"), filepath.Join(b.dir, "other")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.dir, "f")
	attributes := unix.Setxattr(file, "user.note", []byte("mine"), 0) == nil
	if os.Geteuid() == 0 {
		if err := os.Chown(file, 12345, 23456); err != nil {
			t.Fatal(err)
		}
	}
	was, before := statOf(t, file), snapshot(t, b.dir)
	b.agent(func(a *agent) {
		a.write("/f", "new content")
		a.chmod("/f", 0o600)
		a.remove("/gone")
		a.write("/linked", "changed")
		a.chmod("/mode", 0o755)
		a.chmod("/d", 0o700)
		a.removeAll("/closed")
		a.mkdir("/made")
		a.write("/made/f", "new")
		a.chmod("/made", 0o500)
		a.remove("/l")
		a.mkdir("/l")
		a.write("/l/f", "new")
	})
	b.apply()
	after := snapshot(t, b.dir)
	if r := b.mustReverse(false); !r.GivenBack {
		t.Error("the sandbox does not have its changes again")
	}
	if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
		t.Errorf("after undo (-before +now):\n%s", diff)
	}
	is := statOf(t, file)
	if is.Uid != was.Uid || is.Gid != was.Gid || is.Mtim != was.Mtim || is.Mode != was.Mode {
		t.Errorf("f is %+v, want %+v", is, was)
	}
	if buf := make([]byte, 10); attributes {
		if n, err := unix.Getxattr(file, "user.note", buf); err != nil || string(buf[:n]) != "mine" {
			t.Errorf("attribute = %q, %v, want mine", buf[:max(n, 0)], err)
		}
	}
	b.apply() // what the undo has given back
	if diff := cmp.Diff(after, snapshot(t, b.dir)); diff != "" {
		t.Errorf("after another apply (-applied +now):\n%s", diff)
	}
	b.mustReverse(false)
	b.mustReverse(true)
	if diff := cmp.Diff(after, snapshot(t, b.dir)); diff != "" {
		t.Errorf("after redo (-applied +now):\n%s", diff)
	}
	if left := b.changes(); len(left) != 0 {
		t.Errorf("after redo the sandbox still has %q", left)
	}
	if shared(t, b.dir, "linked", "other") {
		t.Error("the replaced name still is the other file")
	}
}

// What the sandbox removed after the apply does not come back with the undo.
func TestUndoLeavesALaterRemovalAlone(t *testing.T) {
	b := newBench(t, tree{"f": "old"})
	b.agent(func(a *agent) {
		a.write("/f", "new")
		a.write("/made", "new")
		a.mkdir("/d")
		a.write("/d/made", "new")
	})
	b.apply()
	b.agent(func(a *agent) {
		a.remove("/f")
		a.remove("/made")
		a.removeAll("/d")
	})
	b.mustReverse(false)
	if diff := cmp.Diff(tree{"f": "old"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("after undo (-want +got):\n%s", diff)
	}
	if got, want := b.changes(), []string{"D /f"}; !cmp.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
	build(t, b.dir, tree{"made": "a person's"})
	b.agent(func(a *agent) {
		if _, err := a.stack.Lookup("/made"); err != nil {
			t.Errorf("the sandbox does not show a new file of the source: %v", err)
		}
	})
}

// A removal that a redo has done again hides nothing that a person makes later.
func TestRedoEndsARemoval(t *testing.T) {
	before := tree{"f": "old", "d/f": "old", "l": "-> f"}
	b := newBench(t, before)
	b.agent(func(a *agent) {
		a.remove("/f")
		a.removeAll("/d")
		a.remove("/l")
	})
	b.apply()
	b.mustReverse(false)
	b.mustReverse(true)
	build(t, b.dir, before)
	if left := b.changes(); len(left) != 0 {
		t.Errorf("the sandbox has %q of what a person has made", left)
	}
}

// A version that was made of another one than the undo takes out stays in conflict with the source.
func TestUndoHidesNoConflict(t *testing.T) {
	b := newBench(t, tree{"f": "old"})
	b.agent(func(a *agent) { a.write("/f", "one") })
	s, err := sandboxsnapshot.Take(b.box, sandboxsnapshot.Snapshot{}, sandboxsnapshot.FreezeStopped(b.box))
	if err != nil {
		t.Fatal(err)
	}
	build(t, b.dir, tree{"f": "a person's"})
	b.agent(func(a *agent) {
		if err := a.stack.Drop("/f"); err != nil {
			t.Fatal(err)
		}
		a.write("/f", "two")
	})
	b.apply()
	if _, err := sandboxsnapshot.Restore(b.box, s.Ref(), false); err != nil {
		t.Fatal(err)
	}
	for _, redo := range []bool{false, true, false} {
		b.mustReverse(redo)
		want := map[bool]string{false: "a person's", true: "two"}[redo]
		if _, err := apply.Changes(t.Context(), b.box, apply.Options{}); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("apply over %q: %v, want a conflict", want, err)
		}
		wantFile(t, filepath.Join(b.dir, "f"), want)
	}
}

func TestUndoAfterTheSourceMovedOn(t *testing.T) {
	tests := []struct {
		name string
		do   func(dir string) error
		want string
	}{
		{"written to", func(d string) error { return os.WriteFile(d+"/f", []byte("edited"), 0o644) }, "/f: its content has changed since: 3 bytes, now 6"},
		{"removed", func(d string) error { return os.Remove(d + "/f") }, "/f: it was removed since"},
		{"made a directory", func(d string) error { return firstOf(os.Remove(d+"/f"), os.Mkdir(d+"/f", 0o755)) }, "/f: it is a directory now"},
		{"mode changed", func(d string) error { return os.Chmod(d+"/f", 0o600) }, "/f: its mode has changed since: 0644, now 0600"},
		{"made again", func(d string) error { return os.WriteFile(d+"/gone", nil, 0o644) }, "/gone: a file was made there since"},
		{"a file in a new directory", func(d string) error { return os.WriteFile(d+"/made/mine", nil, 0o644) }, "/made: it contains made/mine, which was made since"},
		{"a link in place of a directory", func(d string) error {
			return firstOf(os.RemoveAll(d+"/made"), os.Symlink(filepath.Dir(d), d+"/made"))
		}, "/made: it is a symbolic link now; /made/f: its directory no longer exists"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"f": "old", "gone": "1", "g": "old"})
			b.agent(func(a *agent) {
				a.write("/f", "new")
				a.write("/g", "new")
				a.remove("/gone")
				a.mkdir("/made")
				a.write("/made/f", "new")
			})
			b.apply()
			if err := tt.do(b.dir); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, b.dir)
			r, err := b.reverse(false)
			var why []string
			for _, p := range r.Paths {
				if p.Conflict != "" {
					why = append(why, string(p.Path)+": "+p.Conflict)
				}
			}
			if got := strings.Join(why, "; "); !errdefs.Is(err, errdefs.Precondition) || got != tt.want {
				t.Errorf("undo = %v, conflicts %q, want %q", err, got, tt.want)
			}
			if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
				t.Errorf("the undo that was refused changed the source:\n%s", diff)
			}
			if _, entries := b.history(); len(entries) != 1 {
				t.Errorf("history has %d entries, want the apply alone", len(entries))
			}
		})
	}
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// newBenchOnOtherDisk is newBench with the source on another file system than the state directory.
func newBenchOnOtherDisk(t *testing.T, source tree) *bench {
	t.Helper()
	const memory = "/dev/shm"
	dir, err := os.MkdirTemp(memory, "agentfense")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := newBench(t, tree{})
	if statOf(t, dir).Dev == statOf(t, b.home.Dir()).Dev {
		t.Fatalf("%s is on the file system of the state directory", memory)
	}
	build(t, dir, source)
	b.dir = dir
	if b.box, err = b.home.Create(recordOf(t, b.home, dir, "other")); err != nil {
		t.Fatal(err)
	}
	return b
}

// A mode is undone and redone also if the file was replaced by another one with its content.
func TestAModeIsReversedOfAFileThatWasReplaced(t *testing.T) {
	b := newBench(t, tree{"f": "content"})
	b.agent(func(a *agent) { a.chmod("/f", 0o600) })
	b.apply()
	file := filepath.Join(b.dir, "f")
	for _, c := range []struct {
		redo         bool
		before, want os.FileMode
	}{{false, 0o600, 0o644}, {true, 0o644, 0o600}} {
		if err := os.WriteFile(file+".new", []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file+".new", c.before); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		b.mustReverse(c.redo)
		if got := os.FileMode(statOf(t, file).Mode & 0o777); got != c.want {
			t.Errorf("redo is %v: the mode is %o, want %o", c.redo, got, c.want)
		}
		if content, err := os.ReadFile(file); err != nil || string(content) != "content" {
			t.Errorf("redo is %v: the file has %q, %v", c.redo, content, err)
		}
	}
}

// A file of which only the mode changes is no other file because the sandbox gave it another name.
func TestAModeOfALinkedFileIsReversed(t *testing.T) {
	b := newBench(t, tree{"f": "content"})
	before := snapshot(t, b.dir)
	b.agent(func(a *agent) {
		a.link("/f", "/another name") // which is staged first
		a.chmod("/f", 0o600)
	})
	b.applyAndReverse(before)
}

// applyAndReverse applies, undoes and does again. before is the source's snapshot until then.
func (b *bench) applyAndReverse(before map[string]string) {
	b.t.Helper()
	b.apply()
	after := snapshot(b.t, b.dir)
	b.mustReverse(false)
	if diff := cmp.Diff(before, snapshot(b.t, b.dir)); diff != "" {
		b.t.Errorf("after undo (-before +now):\n%s", diff)
	}
	b.mustReverse(true)
	if diff := cmp.Diff(after, snapshot(b.t, b.dir)); diff != "" {
		b.t.Errorf("after redo (-applied +now):\n%s", diff)
	}
}

func TestUndoOnAnotherFileSystem(t *testing.T) {
	source := tree{"f": "old", "gone/f": "x:1", "l": "-> f", "becomes/f": "1"}
	b := newBenchOnOtherDisk(t, source)
	before := snapshot(t, b.dir)
	b.agent(func(a *agent) {
		a.write("/f", "new")
		a.removeAll("/gone")
		a.remove("/l")
		a.symlink("g", "/l")
		a.removeAll("/becomes")
		a.write("/becomes", "file")
	})
	b.applyAndReverse(before)
}

func TestNothingIsAppliedWithoutRoomForThePreviousVersions(t *testing.T) {
	testenv.Root(t)
	if !again(t, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}) {
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	home, err := record.OpenHomeAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, home: home, dir: t.TempDir()}
	large := strings.Repeat("old", 1<<20)
	build(t, b.dir, tree{"large": large, "z": "old"})
	if b.box, err = home.Create(recordOf(t, home, b.dir, "fix")); err != nil {
		t.Fatal(err)
	}
	b.agent(func(a *agent) { a.remove("/large"); a.write("/z", "new") })
	before := snapshot(t, b.dir)
	if _, err := apply.Changes(t.Context(), b.box, apply.Options{}); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("Apply = %v, want Exhausted", err)
	}
	if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-before +now):\n%s", diff)
	}
	if _, entries := b.history(); len(entries) != 0 {
		t.Errorf("history has %d entries, want none", len(entries))
	}
	if got, want := b.changes(), []string{"D /large", "M /z"}; !cmp.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	const size = 64 << 10 // whole blocks
	b := newBench(t, tree{"f": strings.Repeat("0", size)})
	b.home.History.MaxBytesPerSource = size * 5 / 2
	var ids []string
	for i := range 4 {
		b.agent(func(a *agent) { a.write("/f", strings.Repeat(string(rune('1'+i)), size)) })
		ids = append(ids, b.apply().Transaction)
	}
	h, entries := b.history()
	for i, expired := range []bool{true, true, false, false} {
		if entries[i].Expired != expired || entries[i].ID != ids[i] {
			t.Errorf("entry %d = %+v, want %s, expired %v", i, entries[i], ids[i], expired)
		}
	}
	if _, err := undo.Reverse(t.Context(), h, &entries[1], b.box, undo.Options{}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("undo of an expired apply = %v, want Precondition", err)
	}
	b.home.History.Retention = time.Nanosecond
	b.agent(func(a *agent) { a.write("/f", "last") })
	last := b.apply().Transaction
	if _, entries := b.history(); len(entries) != 1 || entries[0].ID != last {
		t.Errorf("history = %+v, want the last apply alone", entries)
	}
	if got := snapshot(t, b.dir)["f"]; got != "last" {
		t.Errorf("f = %q", got)
	}
}

// A file counts as what it takes on the disk, and its holes stay when it is kept and when it is put
// back, also where that takes a copy.
func TestHolesOfPreviousVersionsTakeNoRoom(t *testing.T) {
	for name, linked := range map[string]bool{"moved": false, "copied": true} {
		t.Run(name, func(t *testing.T) {
			const size = 64 << 20
			b := newBench(t, tree{"f": "old"})
			file := filepath.Join(b.dir, "f")
			if err := os.Truncate(file, size); err != nil {
				t.Fatal(err)
			}
			if linked {
				if err := os.Link(file, filepath.Join(t.TempDir(), "other")); err != nil {
					t.Fatal(err)
				}
			}
			taken := blocksOf(t, file)
			if taken >= size/2 {
				t.Skip("the file system has no holes")
			}
			b.home.History.MaxBytesPerSource = size / 2
			b.agent(func(a *agent) { a.remove("/f") })
			b.apply()
			h, entries := b.history()
			if e := &entries[0]; e.Expired || e.Bytes != taken {
				t.Errorf("the history has %d bytes, expired %v, want %d", e.Bytes, e.Expired, taken)
			}
			if _, err := undo.Reverse(t.Context(), h, &entries[0], b.box, undo.Options{}); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(file)
			if err != nil || len(content) != size || string(content[:3]) != "old" {
				t.Errorf("after undo the file has %d bytes, %v", len(content), err)
			}
			if got := blocksOf(t, file); got > taken {
				t.Errorf("after undo the file takes %d bytes on the disk, want %d", got, taken)
			}
		})
	}
}

// blocksOf returns what a file takes on the disk.
func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// Two sandboxes apply to one source at the same time.
func TestAppliesToOneSourceTakeTurns(t *testing.T) {
	b := newBench(t, tree{"both": "old"})
	other := &bench{t: t, home: b.home, dir: b.dir}
	var err error
	if other.box, err = b.home.Create(recordOf(t, b.home, b.dir, "other")); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	for _, one := range []*bench{b, other} {
		one.agent(func(a *agent) {
			a.write("/both", "by "+one.box.Name())
			for i := range 30 {
				a.write(vpath.Path("/"+one.box.Name()+string(rune('a'+i))), "new")
			}
		})
	}
	for _, one := range []*bench{b, other} {
		go func() {
			_, err := apply.Changes(t.Context(), one.box, apply.Options{})
			errs <- err
		}()
	}
	failed := 0
	for range 2 {
		if err := <-errs; errdefs.Is(err, errdefs.Precondition) {
			failed++
		} else if err != nil {
			t.Error(err)
		}
	}
	now := snapshot(t, b.dir)
	if failed != 1 || len(now) != 31 {
		t.Errorf("%d applies failed, and the source has %d files: want one apply whole, the other refused", failed, len(now))
	}
}

// Whatever a sandbox does, undo restores the source and gives the changes back, and redo applies
// them again. If a person has edited what was applied, nothing changes.
func TestUndoIsTheReverseOfApply(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, everything)
		defer done()
		before := snapshot(t, n.dir)
		view := n.act(rt)
		if apply := n.apply(); apply.Transaction == "" {
			return // nothing changed
		}
		if rapid.IntRange(0, 3).Draw(rt, "edit") == 0 {
			n.undoAfterEdit(rt, before, view)
			return
		}
		r := n.mustReverse(false)
		if diff := cmp.Diff(before, snapshot(t, n.dir)); diff != "" {
			rt.Fatalf("after undo (-before +now):\n%s", diff)
		}
		if rapid.Bool().Draw(rt, "apply again") {
			if !r.GivenBack {
				rt.Fatal("the changes were not given back")
			}
			n.apply()
		} else {
			n.mustReverse(true)
		}
		if diff := cmp.Diff(view, snapshot(t, n.dir)); diff != "" {
			rt.Fatalf("applied again (-view +now):\n%s", diff)
		}
		if left := n.changes(); len(left) != 0 {
			rt.Fatalf("left %q", left)
		}
		if rapid.Bool().Draw(rt, "undo again") {
			n.mustReverse(false)
			if diff := cmp.Diff(before, snapshot(t, n.dir)); diff != "" {
				rt.Fatalf("after another undo (-before +now):\n%s", diff)
			}
		}
	})
}

// undoAfterEdit edits a file, and undoes: that is refused, or the edit stays.
func (n arena) undoAfterEdit(rt *rapid.T, before, after tree) {
	name := drawPath(rt).Rel()
	path := filepath.Join(n.dir, name)
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() || os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path)) // the link may go
		name, _ = filepath.Rel(n.dir, path)
	}
	_ = os.Remove(path) // breaks hard links
	if os.WriteFile(path, []byte("edited"), 0o644) != nil {
		return
	}
	edited := snapshot(n.t, n.dir)
	_, err := n.reverse(false)
	now := snapshot(n.t, n.dir)
	if errdefs.Is(err, errdefs.Precondition) {
		if diff := cmp.Diff(edited, now); diff != "" {
			rt.Fatalf("a refused undo changed the source:\n%s", diff)
		}
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "edited" {
		rt.Fatalf("the edit of %s is lost: %q, %v", name, content, err)
	}
	for at, content := range maps.All(before) {
		if _, wasEdited := edited[at]; now[at] != content && !strings.HasPrefix(at, name) && !(wasEdited && edited[at] != after[at]) {
			rt.Fatalf("%s = %q, want %q", at, now[at], content)
		}
	}
}
