package layer

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// appliedAt returns the base that an apply would report for p.
func (b *bench) appliedAt(p vpath.Path) Base {
	b.t.Helper()
	var base Base
	must(b.t, b.atSource(p, func(e entry) error {
		base = baseOf(&e.st)
		return nil
	}))
	return base
}

// keepAll calls DropMatching so that no entry matches what was applied: all stay and get
// the applied bases.
func (b *bench) keepAll(applied map[vpath.Path]Base) {
	b.t.Helper()
	var paths []vpath.Path
	for p := range applied {
		paths = append(paths, p)
	}
	kept, err := b.DropMatching(func(vpath.Path, Info, error) bool { return false }, applied, paths...)
	must(b.t, err)
	if len(kept) != len(paths) {
		b.t.Errorf("kept %q of %q", kept, paths)
	}
}

// matches reports for each change whether the source still matches its base.
func (b *bench) matches() map[string]bool {
	b.t.Helper()
	changes, err := b.Changes()
	must(b.t, err)
	m := map[string]bool{}
	for _, c := range changes {
		if m[string(c.Path)], err = b.SourceMatches(c.Path, c.Base); err != nil {
			b.t.Fatal(err)
		}
	}
	return m
}

func TestAnEntryIsMadeOfWhatWasApplied(t *testing.T) {
	b := newBench(t, map[string]string{"f": "old", "other": "old", "big": "old", "gone": "old", "again": "old"})
	applied := map[vpath.Path]Base{"/gone": {Absent: true}, "/again": {Absent: true}}
	for _, p := range []vpath.Path{"/f", "/other", "/big", "/gone", "/again", "/new", "/removed"} {
		b.write(string(p), "theirs")
	}
	must(t, os.Remove(b.src("gone")))
	content := map[string]string{"f": "applied", "other": "applied", "new": "applied", "removed": "applied", "big": string(make([]byte, ContentMax+1))}
	for name, text := range content {
		must(t, os.WriteFile(b.src(name), []byte(text), 0o644))
		applied[vpath.Path("/"+name)] = b.appliedAt(vpath.Path("/" + name))
	}
	for _, name := range []string{"other", "again"} {
		must(t, os.WriteFile(b.src(name), []byte("by another"), 0o644))
	}
	b.unlink("/removed")
	b.keepAll(applied)
	b.reopen()
	want := map[string]bool{
		"/f": true, "/new": true, "/big": true, "/gone": true, "/removed": true,
		"/other": false, // changed in the source
		"/again": false, // made again in the source
	}
	if diff := cmp.Diff(want, b.matches()); diff != "" {
		t.Errorf("is the source what the change is made of? (-want +got):\n%s", diff)
	}
	base, err := b.Base("/f")
	must(t, err)
	f, err := b.BaseContent(base)
	must(t, err)
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "applied" {
		t.Errorf("the content kept for a merge is %q, %v", text, err)
	}
}

// A link that is put back counts as the same link, as a file does, also if its ctime differs.
func TestALinkThatWasAppliedIsKnownByItsTarget(t *testing.T) {
	b := newBench(t, map[string]string{"l": "old"})
	b.write("/l", "theirs")
	must(t, os.Remove(b.src("l")))
	must(t, os.Symlink("applied", b.src("l")))
	b.keepAll(map[vpath.Path]Base{"/l": b.appliedAt("/l")})
	b.reopen()
	for target, want := range map[string]bool{"applied": true, "changed": false} {
		must(t, os.Remove(b.src("l")))
		must(t, os.Symlink(target, b.src("l")))
		if got := b.matches()["/l"]; got != want {
			t.Errorf("a link to %s matches what was applied: %v, want %v", target, got, want)
		}
	}
}

func TestWhatWasAppliedAfterItsRemovalIsHidden(t *testing.T) {
	b := newBench(t, map[string]string{"f": "applied", "d/": "", "full/x": "1"})
	b.keepAll(map[vpath.Path]Base{"/f": b.appliedAt("/f"), "/d": b.appliedAt("/d"), "/full": b.appliedAt("/full")})
	b.reopen()
	if diff := cmp.Diff([]string{"full"}, b.names("/")); diff != "" {
		t.Errorf("the view (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"/f": true, "/d": true}, b.matches()); diff != "" {
		t.Errorf("what is to be removed (-want +got):\n%s", diff)
	}
}

func TestWhatIsLeftOutIsMadeOfWhatWasApplied(t *testing.T) {
	b := newLeaving(t, map[string]string{"out": "applied", "a/out": "applied"})
	b.put("/out", "again")
	b.keepAll(map[vpath.Path]Base{"/out": b.appliedAt("/out"), "/a/out": b.appliedAt("/a/out")})
	if diff := cmp.Diff(map[string]bool{"/out": true}, b.matches()); diff != "" {
		t.Errorf("is the source what the change is made of? (-want +got):\n%s", diff)
	}
	if base, err := b.Base("/a/out"); err != nil || base != nil {
		t.Errorf("what is no change has the base %v, %v", base, err)
	}
}

// If a crash tears a record, the earlier record counts, which is a conflict.
func TestALostRecordOfWhatWasAppliedLeavesTheEarlier(t *testing.T) {
	b := newBench(t, map[string]string{"f": "old"})
	b.write("/f", "theirs")
	log, err := os.ReadFile(filepath.Join(b.dir, logName))
	must(t, err)
	log = bytes.TrimRight(log, "\x00") // the room behind it
	must(t, os.WriteFile(b.src("f"), []byte("applied"), 0o644))
	b.keepAll(map[vpath.Path]Base{"/f": b.appliedAt("/f")})
	if !b.matches()["/f"] {
		t.Error("what was applied is not recorded")
	}
	b.changeLog(func(after []byte) []byte { return after[:len(log)+1] })
	if m := b.matches(); len(m) != 1 || m["/f"] {
		t.Errorf("without its record what was applied still counts: %v", m)
	}
}
