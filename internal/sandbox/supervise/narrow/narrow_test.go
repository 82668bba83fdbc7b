package narrow

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// inNamespace runs do on a thread with mounts that end with it.
func inNamespace(t *testing.T, do func()) {
	t.Helper()
	testenv.Root(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and end with it
		var err error
		defer func() { done <- err }() // also when do fails the test
		err = unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			do()
		}
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// bench is a source with a mount below it, as a scratch directory is, and results.
type bench struct {
	source, dir string
	runs        int
}

var paths = []string{"a", "a/b", "a/b/f", "a/f", "c", "c/m", "c/m/f", "g"}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{source: t.TempDir(), dir: t.TempDir()}
	for _, dir := range []string{"a/b", "c/m"} {
		if err := os.MkdirAll(filepath.Join(b.source, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("tmpfs", filepath.Join(b.source, "c/m"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/b/f", "a/f", "c/m/f", "g"} {
		if err := os.WriteFile(filepath.Join(b.source, name), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// narrow does the steps, and returns the work and where the result is.
func (b *bench) narrow(steps []inner.Step) (*work, string, error) {
	b.runs++
	dir := filepath.Join(b.dir, fmt.Sprint(b.runs))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, "", err
	}
	w := &work{ours: map[uint64]bool{}, job: &Job{
		Areas: []Area{{Name: "views/w", From: inner.Text(b.source), At: []inner.Text{"/work", "/alias"}}},
		Dir:   inner.Text(dir), Steps: steps,
	}}
	return w, filepath.Join(dir, "views/w"), w.mount()
}

// access is what is found at a path: what was in the source, whether it can be changed.
type access struct{ there, writable bool }

// isDir says which of the paths are directories of the source.
func isDir(p string) bool { return slices.Contains([]string{"a", "a/b", "c", "c/m"}, p) }

func accessAt(root, p string) access {
	path := filepath.Join(root, p)
	info, err := os.Lstat(path)
	if err != nil || info.IsDir() != isDir(p) {
		return access{}
	}
	if info.IsDir() {
		f, err := os.CreateTemp(path, "probe")
		if err == nil {
			f.Close()
			os.Remove(f.Name())
		}
		return access{true, err == nil}
	}
	content, _ := os.ReadFile(path)
	if string(content) != "text" {
		return access{}
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	return access{true, err == nil}
}

// Random steps give at each path what the last one at or above it says, and never more.
func TestStepsAreAsInAModel(t *testing.T) {
	inNamespace(t, func() {
		b := newBench(t)
		defer unix.Unmount(filepath.Join(b.source, "c/m"), unix.MNT_DETACH)
		places := []string{"/", "/work", "/alias"}
		for _, p := range paths {
			places = append(places, "/work/"+p, "/alias/"+p)
		}
		rapid.Check(t, func(t *rapid.T) {
			var steps []inner.Step
			for range rapid.IntRange(0, 8).Draw(t, "n") {
				steps = append(steps, inner.Step{
					Kind: rapid.SampledFrom([]inner.Kind{inner.ReadOnly, inner.Writable, inner.Empty, inner.File}).Draw(t, "kind"),
					Path: inner.Text(rapid.SampledFrom(places).Draw(t, "path")), Optional: true, Mode: 0o755,
				})
			}
			w, at, err := b.narrow(steps)
			defer unix.Unmount(string(w.job.Dir), unix.MNT_DETACH)
			if err != nil {
				return // refused
			}
			for _, p := range paths {
				want := access{}
				switch kindAt(steps, p) {
				case inner.ReadOnly:
					want = access{there: true}
				case inner.Writable:
					want = access{true, true}
				}
				got := accessAt(at, p)
				if got.writable && !want.writable && !isOwn(steps, p) || got.there && !want.there && !isOwn(steps, p) {
					t.Fatalf("%+v: at %s: got %+v, want at most %+v", steps, p, got, want)
				}
				if want.there && got != want {
					t.Fatalf("%+v: at %s: got %+v, want %+v", steps, p, got, want)
				}
			}
			if len(w.points) > 0 {
				t.Fatalf("%+v: made %+v, and everything is there", steps, w.points)
			}
		})
	})
}

// kindAt is the kind of the last step at or above a path of the area.
func kindAt(steps []inner.Step, p string) (kind inner.Kind) {
	for _, s := range steps {
		if safefs.IsBelow("/work/"+p, string(s.Path)) || safefs.IsBelow("/alias/"+p, string(s.Path)) {
			kind = s.Kind
		}
	}
	return kind
}

// isOwn reports whether what is at a directory is new and belongs to the inner sandbox.
func isOwn(steps []inner.Step, p string) bool {
	return isDir(p) && kindAt(steps, p) != inner.ReadOnly
}

// Names are the programs' choice: no link leads out.
func TestHostileNames(t *testing.T) {
	inNamespace(t, func() {
		b := newBench(t)
		defer unix.Unmount(filepath.Join(b.source, "c/m"), unix.MNT_DETACH)
		outside := t.TempDir()
		for link, target := range map[string]string{"out": outside, "up": "..", "proc": "/proc/self/root", "in": "a"} {
			if err := os.Symlink(target, filepath.Join(b.source, link)); err != nil {
				t.Fatal(err)
			}
		}
		all := inner.Step{Kind: inner.Writable, Path: "/"}
		for _, tt := range []struct {
			step inner.Step
			want error
		}{
			{inner.Step{Kind: inner.Writable, Path: "/work/out"}, unix.ELOOP},
			{inner.Step{Kind: inner.ReadOnly, Path: "/work/in/b"}, unix.ELOOP},
			{inner.Step{Kind: inner.Empty, Path: "/work/out/x"}, unix.ELOOP},
			{inner.Step{Kind: inner.Empty, Path: "/work/up/x"}, unix.ELOOP},
			{inner.Step{Kind: inner.File, Path: "/work/proc/x"}, unix.ELOOP},
			{inner.Step{Kind: inner.Empty, Path: "/work/in"}, unix.ELOOP},
			{inner.Step{Kind: inner.File, Path: "/work/a"}, unix.EISDIR},
			{inner.Step{Kind: inner.Writable, Path: "/work/absent"}, unix.ENOENT},
			{inner.Step{Kind: inner.Freeze, Path: "/work/a"}, unix.EINVAL},
		} {
			w, _, err := b.narrow([]inner.Step{all, tt.step})
			unix.Unmount(string(w.job.Dir), unix.MNT_DETACH)
			if err == nil {
				t.Errorf("%+v: done", tt.step)
			}
			if want := explain(tt.step, tt.want); err == nil || err.Error() != want.Error() {
				t.Errorf("%+v: got %v, want %v", tt.step, err, want)
			}
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
			t.Errorf("outside: %v, %v", entries, err)
		}
	})
}

// What a step made read-only later stays as it is, and so does what is beside it.
func TestFreeze(t *testing.T) {
	inNamespace(t, func() {
		b := newBench(t)
		defer unix.Unmount(filepath.Join(b.source, "c/m"), unix.MNT_DETACH)
		w, at, err := b.narrow([]inner.Step{
			{Kind: inner.Writable, Path: "/work"},
			{Kind: inner.Writable, Path: "/work/c"},
			{Kind: inner.Empty, Path: "/work/a", Mode: 0o755},
			{Kind: inner.Dir, Path: "/work/a/made", Mode: 0o700},
			{Kind: inner.Freeze, Path: "/work/a"},
			{Kind: inner.Freeze, Path: "/work"},
		})
		defer unix.Unmount(string(w.job.Dir), unix.MNT_DETACH)
		if err != nil {
			t.Fatal(err)
		}
		for p, want := range map[string]access{"g": {there: true}, "c": {true, true}, "c/m/f": {true, true}, "a": {there: true}, "a/f": {}} {
			if got := accessAt(at, p); got != want {
				t.Errorf("%s: got %+v, want %+v", p, got, want)
			}
		}
		if info, err := os.Lstat(filepath.Join(at, "a/made")); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory that was made: %v, %v", info, err)
		}
	})
}

// A link can be covered by a file, so that no program changes where it leads.
func TestPointsAreMadeAndRemoved(t *testing.T) {
	inNamespace(t, func() {
		b := newBench(t)
		defer unix.Unmount(filepath.Join(b.source, "c/m"), unix.MNT_DETACH)
		if err := os.Symlink("a", filepath.Join(b.source, "link")); err != nil {
			t.Fatal(err)
		}
		w, at, err := b.narrow([]inner.Step{
			{Kind: inner.Writable, Path: "/work"},
			{Kind: inner.File, Path: "/work/link", Mode: 0o444},
			{Kind: inner.File, Path: "/work/new/file", Mode: 0o444},
			{Kind: inner.Empty, Path: "/work/dir", Mode: 0o755},
		})
		defer unix.Unmount(string(w.job.Dir), unix.MNT_DETACH)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"link", "new/file"} {
			if info, err := os.Lstat(filepath.Join(at, name)); err != nil || !info.Mode().IsRegular() || info.Size() != 0 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
			if err := os.WriteFile(filepath.Join(at, name), nil, 0o644); !errors.Is(err, unix.EROFS) {
				t.Errorf("write to %s: %v", name, err)
			}
		}
		if len(w.points) != 3 {
			t.Fatalf("points: %+v", w.points)
		}
		unix.Unmount(string(w.job.Dir), unix.MNT_DETACH)
		if err := os.WriteFile(filepath.Join(b.source, "dir/theirs"), nil, 0o644); err != nil { // what others use stays
			t.Fatal(err)
		}
		w.job.Remove = w.points
		if err := w.remove(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"new": false, "dir/theirs": true, "link": true} {
			if _, err := os.Lstat(filepath.Join(b.source, name)); (err == nil) != want {
				t.Errorf("%s: %v, want it there: %t", name, err, want)
			}
		}
	})
}
