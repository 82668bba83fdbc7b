package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

type tree = map[string]string

func TestApply(t *testing.T) {
	tests := []struct {
		name   string
		source tree
		agent  func(a *agent)
		want   tree
	}{
		{
			"a modified file is replaced",
			tree{"f": "old", "g": "stays"},
			func(a *agent) { a.write("/f", "new") },
			tree{"f": "new", "g": "stays"},
		},
		{
			"a new file is made",
			tree{},
			func(a *agent) { a.write("/f", "new") },
			tree{"f": "new"},
		},
		{
			"new directories are made with what is in them",
			tree{},
			func(a *agent) { a.mkdir("/a"); a.mkdir("/a/b"); a.write("/a/b/f", "new"); a.mkdir("/empty") },
			tree{"a/": "", "a/b/": "", "a/b/f": "new", "empty/": ""},
		},
		{
			"a deleted file is deleted",
			tree{"f": "old", "g": "stays"},
			func(a *agent) { a.remove("/f") },
			tree{"g": "stays"},
		},
		{
			"a deleted directory is deleted with all below",
			tree{"d/a": "1", "d/e/b": "2", "g": "stays"},
			func(a *agent) { a.removeAll("/d") },
			tree{"g": "stays"},
		},
		{
			"a directory made again holds only what is new",
			tree{"d/a": "1", "d/b": "2"},
			func(a *agent) { a.removeAll("/d"); a.mkdir("/d"); a.write("/d/b", "new") },
			tree{"d/": "", "d/b": "new"},
		},
		{
			"a rename moves",
			tree{"d/a": "1"},
			func(a *agent) { a.rename("/d/a", "/d/b") },
			tree{"d/": "", "d/b": "1"},
		},
		{
			"a renamed directory moves with all below",
			tree{"d/a": "1", "d/e/b": "2"},
			func(a *agent) { a.rename("/d", "/n") },
			tree{"n/": "", "n/a": "1", "n/e/": "", "n/e/b": "2"},
		},
		{
			"a mode changes",
			tree{"f": "same", "d/": ""},
			func(a *agent) { a.chmod("/f", 0o755); a.chmod("/d", 0o700) },
			tree{"f": "x:same", "d/": " (drwx------)"},
		},
		{
			"a directory that its owner cannot write to is filled all the same",
			tree{},
			func(a *agent) { a.mkdir("/d"); a.write("/d/f", "1"); a.chmod("/d", 0o500) },
			tree{"d/": " (dr-x------)", "d/f": "1"},
		},
		{
			"a link is made, changed and deleted",
			tree{"changed": "-> old", "gone": "-> x"},
			func(a *agent) {
				a.symlink("to", "/made")
				a.remove("/changed")
				a.symlink("new", "/changed")
				a.remove("/gone")
			},
			tree{"made": "-> to", "changed": "-> new"},
		},
		{
			"a file becomes a directory",
			tree{"f": "old"},
			func(a *agent) { a.remove("/f"); a.mkdir("/f"); a.write("/f/g", "new") },
			tree{"f/": "", "f/g": "new"},
		},
		{
			"a directory becomes a file",
			tree{"d/a": "1", "d/e/b": "2"},
			func(a *agent) { a.removeAll("/d"); a.write("/d", "new") },
			tree{"d": "new"},
		},
		{
			"a directory becomes a link",
			tree{"d/a": "1", "e/": ""},
			func(a *agent) { a.removeAll("/d"); a.symlink("e", "/d") },
			tree{"d": "-> e", "e/": ""},
		},
		{
			"a file becomes a link and a link a file",
			tree{"f": "1", "l": "-> f"},
			func(a *agent) { a.remove("/f"); a.symlink("l", "/f"); a.remove("/l"); a.write("/l", "2") },
			tree{"f": "-> l", "l": "2"},
		},
		{
			"a fifo is made",
			tree{},
			func(a *agent) { _, err := a.stack.Mknod("/p", unix.S_IFIFO|0o640); a.check(err) },
			tree{"p": "prw-r-----"},
		},
		{
			"a file that was only opened for writing is left alone",
			tree{"f": "same"},
			func(a *agent) { _, err := a.stack.CopyUp("/f"); a.check(err) },
			tree{"f": "same"},
		},
		{
			"names are bytes",
			tree{"\xff\n": "old"},
			func(a *agent) { a.write("/\xff\n", "new"); a.write("/.wh.x", "1") },
			tree{"\xff\n": "new", ".wh.x": "1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.source)
			b.agent(tt.agent)
			b.apply()
			if diff := cmp.Diff(tt.want, snapshot(t, b.dir)); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
			_ = os.Chmod(filepath.Join(b.dir, "d"), 0o755) // so that it can be deleted
			if left := b.changes(); len(left) != 0 {
				t.Errorf("after apply the sandbox still has the changes %q", left)
			}
		})
	}
}

func TestApplyKeepsWhatTheFileWasBesides(t *testing.T) {
	b := newBench(t, tree{"f": "old", "d/": ""})
	file, dir := filepath.Join(b.dir, "f"), filepath.Join(b.dir, "d")
	attributes := unix.Setxattr(file, "user.note", []byte("mine"), 0) == nil
	if os.Geteuid() == 0 {
		for _, path := range []string{file, dir} {
			if err := os.Chown(path, 12345, 23456); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(dir, 0o755|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	when := unix.Timespec{Sec: 1_000_000_000, Nsec: 123}
	b.agent(func(a *agent) {
		a.write("/f", "new")
		_, err := a.stack.SetAttr("/f", layer.SetAttr{Mtime: &when})
		a.check(err)
		a.write("/d/g", "new")
		a.mkdir("/d/e")
		a.chmod("/d", 0o711)
	})
	b.apply()
	if st := statOf(t, file); st.Mtim != when {
		t.Errorf("mtime = %v, want %v", st.Mtim, when)
	}
	if attributes {
		buf := make([]byte, 10)
		if n, err := unix.Getxattr(file, "user.note", buf); err != nil || string(buf[:n]) != "mine" {
			t.Errorf("attribute = %q, %v, want mine", buf[:max(n, 0)], err)
		}
	}
	if st := statOf(t, dir); st.Mode&0o7777 != 0o2711 {
		t.Errorf("a chmod inside made the setgid directory %04o, want 2711", st.Mode&0o7777)
	}
	if st := statOf(t, dir+"/e"); st.Mode&0o7777 != 0o2755 {
		t.Errorf("a directory made in a setgid one is %04o, want 2755", st.Mode&0o7777)
	}
	if os.Geteuid() == 0 {
		for _, path := range []string{file, dir + "/g", dir + "/e"} {
			if st := statOf(t, path); st.Uid != 12345 || st.Gid != 23456 {
				t.Errorf("%s belongs to %d:%d, want 12345:23456", path, st.Uid, st.Gid)
			}
		}
	}
}

func TestApplyToTheRootItself(t *testing.T) {
	b := newBench(t, tree{})
	b.agent(func(a *agent) { a.chmod("/", 0o750); a.write("/f", "new") })
	if got, want := b.changes(), []string{"M /", "A /f"}; !cmp.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
	b.apply()
	if st := statOf(t, b.dir); st.Mode&0o7777 != 0o750 {
		t.Errorf("the root has mode %04o, want 0750", st.Mode&0o7777)
	}
	if left := b.changes(); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

func TestApplyNeverMakesAFileSetuid(t *testing.T) {
	b := newBench(t, tree{"was": "x:old"})
	if err := os.Chmod(filepath.Join(b.dir, "was"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	b.agent(func(a *agent) {
		a.write("/was", "new")
		a.write("/made", "new")
		a.mkdir("/dir")
		a.chmod("/made", 0o6755)
		a.chmod("/dir", 0o7777)
	})
	b.apply()
	for name, want := range map[string]uint32{"was": 0o755, "made": 0o755, "dir": 0o1777} {
		if st := statOf(t, filepath.Join(b.dir, name)); st.Mode&0o7777 != want {
			t.Errorf("%s has mode %04o, want %04o", name, st.Mode&0o7777, want)
		}
	}
}

func TestApplyOfParts(t *testing.T) {
	b := newBench(t, tree{"d/a": "1", "d/b": "1"})
	b.agent(func(a *agent) {
		a.mkdir("/n")
		a.mkdir("/n/m")
		a.write("/n/m/f", "2")
		a.write("/n/g", "2")
		a.removeAll("/d")
	})
	r := b.apply("/n/m/f", "/d/a")
	if got := outcomes(r); len(got) != 4 { // with /n and /n/m
		t.Errorf("outcomes = %v", got)
	}
	if diff := cmp.Diff(tree{"d/": "", "d/b": "1", "n/": "", "n/m/": "", "n/m/f": "2"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if got, want := b.changes(), []string{"D /d/b", "A /n/g"}; !cmp.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if _, err := apply.Changes(t.Context(), b.box, apply.Options{Paths: []vpath.Path{"/none"}}); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Apply of a path without changes = %v, want NotFound", err)
	}
	b.apply()
	if diff := cmp.Diff(tree{"n/": "", "n/m/": "", "n/m/f": "2", "n/g": "2"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

func TestWhatWasAppliedInPartCanBeMadeAgain(t *testing.T) {
	b := newBench(t, tree{"d/a": "1", "d/b": "1", "e/a": "1"})
	b.agent(func(a *agent) { a.removeAll("/d"); a.removeAll("/e") })
	b.apply("/d/a")
	b.apply("/e")
	b.agent(func(a *agent) { a.mkdir("/d"); a.write("/d/a", "2"); a.mkdir("/e"); a.write("/e/a", "2") })
	b.apply()
	if diff := cmp.Diff(tree{"d/": "", "d/a": "2", "e/": "", "e/a": "2"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

func TestDryRunTouchesNothing(t *testing.T) {
	b := newBench(t, tree{"a": "1"})
	b.agent(func(a *agent) { a.write("/a", "2"); a.write("/b", "2") })
	lock, err := b.box.TryLock(record.PurposeSupervise)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	r, err := apply.Changes(t.Context(), b.box, apply.Options{DryRun: true})
	if err != nil || r.Count(apply.Applied) != 2 {
		t.Errorf("Apply = %v, %v", r, err)
	}
	if diff := cmp.Diff(tree{"a": "1"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source changed:\n%s", diff)
	}
	if len(b.changes()) != 2 {
		t.Errorf("left %q", b.changes())
	}
	var held *record.HeldError
	if _, err := apply.Changes(t.Context(), b.box, apply.Options{}); !errors.As(err, &held) {
		t.Errorf("Apply of a running sandbox by itself = %v, want a HeldError", err)
	}
}

func TestApplyBesideASupervisorDropsByIt(t *testing.T) {
	b := newBench(t, tree{"a": "1", "b": "1"})
	b.agent(func(a *agent) {
		a.write("/a", "2")
		a.write("/b", "2")
		drop := func(v []changes.Version) ([]vpath.Path, error) {
			a.write("/b", "later")
			return changes.DropVersions(a.stack, v)
		}
		r, err := apply.Changes(t.Context(), b.box, apply.Options{Drop: drop})
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(r.Changed, []vpath.Path{"/b"}) {
			t.Errorf("written to meanwhile: %v, want /b", r.Changed)
		}
	})
	if diff := cmp.Diff(tree{"a": "2", "b": "2"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	b.agent(func(a *agent) {
		f, _, err := a.stack.Open("/b", false)
		a.check(err)
		buf := make([]byte, 10)
		n, err := f.ReadAt(buf, 0)
		a.check(err)
		a.check(f.Close())
		if string(buf[:n]) != "later" {
			t.Errorf("the later write became %q", buf[:n])
		}
	})
}

// TestApplyOfWhatTheSandboxIsWritingIsBusy changes a file between the plan, after
// which the directory is made, and its copy.
func TestApplyOfWhatTheSandboxIsWritingIsBusy(t *testing.T) {
	for name, meanwhile := range map[string]func(a *agent){
		"written again": func(a *agent) { a.write("/f", "later") },
		"removed":       func(a *agent) { a.remove("/f") },
		"renamed":       func(a *agent) { a.rename("/f", "/g") },
		"replaced":      func(a *agent) { a.remove("/f"); a.symlink("x", "/f") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tree{"gone": "1"})
			b.agent(func(a *agent) {
				a.mkdir("/d")
				a.write("/f", "now")
				a.remove("/gone")
				o := apply.Options{
					Drop: func(v []changes.Version) ([]vpath.Path, error) { return changes.DropVersions(a.stack, v) },
					Progress: func(tried, _ int) {
						if tried == 1 {
							meanwhile(a)
						}
					},
				}
				r, err := apply.Changes(t.Context(), b.box, o)
				if !errors.Is(err, apply.ErrBusy) || !errdefs.Is(err, errdefs.Precondition) {
					t.Errorf("Apply = %v, want that the sandbox is writing to it", err)
				}
				if r.Count(apply.Applied) != 1 || r.Count(apply.Failed) != 1 || r.Count(apply.Skipped) != 1 {
					t.Errorf("Apply = %+v", r)
				}
				o.Progress = nil
				if _, err := apply.Changes(t.Context(), b.box, o); err != nil {
					t.Errorf("Apply of it at rest = %v", err)
				}
			})
			if left := b.changes(); len(left) != 0 {
				t.Errorf("left are the changes %q", left)
			}
		})
	}
}

func TestHardLinksStayLinks(t *testing.T) {
	b := newBench(t, tree{"old": "1"})
	b.agent(func(a *agent) {
		a.write("/a", "new")
		for _, p := range []vpath.Path{"/b", "/c"} {
			_, err := a.stack.Link("/a", p)
			a.check(err)
		}
		a.remove("/old")
		_, err := a.stack.Link("/a", "/old")
		a.check(err)
	})
	b.apply()
	if diff := cmp.Diff(tree{"a": "new", "b": "new", "c": "new", "old": "new"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if st := statOf(t, b.dir+"/a"); st.Nlink != 4 {
		t.Errorf("a has %d names, want 4", st.Nlink)
	}
}

func TestDeletingTheNamesOfOneFileIsNoConflict(t *testing.T) {
	b := newBench(t, tree{"d/a": "1", "stays": "2"})
	for _, name := range []string{"/d/b", "/d/c"} {
		if err := os.Link(b.dir+"/d/a", b.dir+name); err != nil {
			t.Fatal(err)
		}
	}
	b.agent(func(a *agent) { a.removeAll("/d") })
	b.apply("/d/b")
	b.apply()
	if diff := cmp.Diff(tree{"stays": "2"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

func TestApplyIsAudited(t *testing.T) {
	b := newBench(t, tree{"a": "1", "b": "1"})
	b.agent(func(a *agent) { a.write("/a", "2"); a.write("/b\n", "2"); a.remove("/b") })
	b.apply("/a")
	if _, err := apply.Discard(b.box, apply.DiscardOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.home.Remove("fix"); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(b.box.AuditPath())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	wants := []string{
		`"event":"sandbox_created"`, `"event":"applied","prev"`,
		`"event":"discarded"`, `"event":"sandbox_destroyed"`,
	}
	wants[1] = `"event":"applied","paths":["/a"]`
	wants[2] = `"event":"discarded","paths":["/b","/b\\x0a"]`
	if len(lines) != len(wants) {
		t.Fatalf("audit log:\n%s", log)
	}
	for i, want := range wants {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
}
