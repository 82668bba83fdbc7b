package apply_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// The moments between the copy of a file and the end of its apply.
const (
	copied = "when it is copied" // not placed yet: another file was placed before it
	placed = "when it is placed" // not forgotten yet
	killed = "when the apply is killed, before anything is forgotten"
)

var errKilled = errors.New("killed")

// applyLive applies beside a live sandbox, which does meanwhile at the moment.
func (b *bench) applyLive(a *agent, moment string, meanwhile func(a *agent)) (apply.Result, error) {
	return apply.Changes(b.t.Context(), b.box, apply.Options{
		Progress: func(tried, _ int) {
			if moment == copied && tried == 1 {
				meanwhile(a)
			}
		},
		Drop: func(v []changes.Version) ([]vpath.Path, error) {
			if moment == placed || moment == killed {
				meanwhile(a)
			}
			if moment == killed {
				return nil, errKilled
			}
			text, err := json.Marshal(v) // as it goes to the supervisor
			a.check(err)
			var sent []changes.Version
			a.check(json.Unmarshal(text, &sent))
			return changes.DropVersions(a.stack, sent)
		},
	})
}

// TestWhatIsChangedWhileItIsAppliedCanBeAppliedAgain changes an entry after its
// apply has copied it. Nobody else has touched the source, so that nothing may be
// in conflict, and in the end the source is what the sandbox shows.
func TestWhatIsChangedWhileItIsAppliedCanBeAppliedAgain(t *testing.T) {
	source := tree{"f": "old", "dir/in": "old", "gone": "old", "link": "-> old"}
	for name, tt := range map[string]struct {
		first, meanwhile func(a *agent)
		want             tree // beside "a", and what of source is not mentioned
		not              []string
		onlyPlaced       bool // it is no regular file, which alone is copied before it is placed
	}{
		"written, written again": {
			first:     func(a *agent) { a.write("/f", "first") },
			meanwhile: func(a *agent) { a.write("/f", "second, longer") },
			want:      tree{"f": "second, longer"},
		},
		"written, written as it was": {
			first:     func(a *agent) { a.write("/f", "first") },
			meanwhile: func(a *agent) { a.write("/f", "old") },
			want:      tree{"f": "old"},
		},
		"written, removed": {
			first:     func(a *agent) { a.write("/f", "first") },
			meanwhile: func(a *agent) { a.remove("/f") },
			not:       []string{"f"},
		},
		"written, renamed": {
			first:     func(a *agent) { a.write("/f", "first") },
			meanwhile: func(a *agent) { a.rename("/f", "/g") },
			want:      tree{"g": "first"}, not: []string{"f"},
		},
		"written, another renamed over it": {
			first:     func(a *agent) { a.write("/f", "first"); a.write("/f.tmp", "second, longer") },
			meanwhile: func(a *agent) { a.rename("/f.tmp", "/f") },
			want:      tree{"f": "second, longer"}, not: []string{"f.tmp"},
		},
		"written, made executable": {
			first:     func(a *agent) { a.write("/f", "first") },
			meanwhile: func(a *agent) { a.chmod("/f", 0o755) },
			want:      tree{"f": "x:first"},
		},
		"written, made a link": {
			first:     func(a *agent) { a.write("/f", "first") },
			meanwhile: func(a *agent) { a.remove("/f"); a.symlink("x", "/f") },
			want:      tree{"f": "-> x"},
		},
		"written, made a directory": {
			first:     func(a *agent) { a.write("/f", "first") },
			meanwhile: func(a *agent) { a.remove("/f"); a.mkdir("/f"); a.write("/f/in", "x") },
			want:      tree{"f/": "", "f/in": "x"}, not: []string{"f"},
		},
		"made executable, written": {
			first:      func(a *agent) { a.chmod("/f", 0o755) },
			meanwhile:  func(a *agent) { a.write("/f", "second, longer") },
			want:       tree{"f": "x:second, longer"},
			onlyPlaced: true,
		},
		"new, written again": {
			first:     func(a *agent) { a.write("/new", "first") },
			meanwhile: func(a *agent) { a.write("/new", "second, longer") },
			want:      tree{"new": "second, longer"},
		},
		"new, removed": {
			first:     func(a *agent) { a.write("/new", "first") },
			meanwhile: func(a *agent) { a.remove("/new") },
		},
		"new, renamed": {
			first:     func(a *agent) { a.write("/new", "first") },
			meanwhile: func(a *agent) { a.rename("/new", "/newer") },
			want:      tree{"newer": "first"},
		},
		"new in a new directory, all removed": {
			first:     func(a *agent) { a.mkdir("/d"); a.write("/d/new", "first") },
			meanwhile: func(a *agent) { a.removeAll("/d") }, onlyPlaced: true,
		},
		"new in a new directory, which is renamed": {
			first:     func(a *agent) { a.mkdir("/d"); a.write("/d/new", "first") },
			meanwhile: func(a *agent) { a.rename("/d", "/e") },
			want:      tree{"e/": "", "e/new": "first"}, onlyPlaced: true,
		},
		"new directory, closed": {
			first:     func(a *agent) { a.mkdir("/d") },
			meanwhile: func(a *agent) { a.chmod("/d", 0o700) },
			want:      tree{"d/": " (drwx------)"}, onlyPlaced: true,
		},
		"two names, written again": {
			first:     func(a *agent) { a.write("/new", "first"); a.link("/new", "/newer") },
			meanwhile: func(a *agent) { a.write("/new", "second, longer") },
			want:      tree{"new": "second, longer", "newer": "second, longer"},
		},
		"link changed, changed again": {
			first:     func(a *agent) { a.remove("/link"); a.symlink("first", "/link") },
			meanwhile: func(a *agent) { a.remove("/link"); a.symlink("second", "/link") },
			want:      tree{"link": "-> second"}, onlyPlaced: true,
		},
		"removed, made again": {
			first:     func(a *agent) { a.remove("/gone") },
			meanwhile: func(a *agent) { a.write("/gone", "second, longer") },
			want:      tree{"gone": "second, longer"}, onlyPlaced: true,
		},
		"removed, made again and removed": {
			first:     func(a *agent) { a.remove("/gone") },
			meanwhile: func(a *agent) { a.write("/gone", "x"); a.remove("/gone") },
			not:       []string{"gone"}, onlyPlaced: true,
		},
		"new directory, removed before it is made": {
			first:     func(a *agent) { a.mkdir("/b"); a.mkdir("/d") },
			meanwhile: func(a *agent) { a.removeAll("/d") },
			want:      tree{"b/": ""},
		},
		"removed with its directory, made again as a file": {
			first:     func(a *agent) { a.removeAll("/dir") },
			meanwhile: func(a *agent) { a.write("/dir", "second") },
			want:      tree{"dir": "second"}, not: []string{"dir/in", "dir/"}, onlyPlaced: true,
		},
		"removed with its directory, made again": {
			first:     func(a *agent) { a.removeAll("/dir") },
			meanwhile: func(a *agent) { a.mkdir("/dir"); a.write("/dir/in", "second, longer") },
			want:      tree{"dir/in": "second, longer"}, onlyPlaced: true,
		},
	} {
		for _, moment := range []string{copied, placed, killed} {
			if tt.onlyPlaced && moment == copied {
				continue
			}
			t.Run(name+" "+moment, func(t *testing.T) {
				b := newBench(t, source)
				b.agent(func(a *agent) {
					a.write("/a", "first of all")
					tt.first(a)
					if _, err := b.applyLive(a, moment, tt.meanwhile); moment == killed && !errors.Is(err, errKilled) || moment != killed && err != nil {
						t.Fatal(err)
					}
					if r, err := b.applyLive(a, "", nil); err != nil {
						t.Errorf("the next apply: %v %v", err, outcomes(r))
					}
				})
				want := tree{"a": "first of all", "dir/": ""}
				for _, part := range []tree{source, tt.want} {
					maps.Copy(want, part)
				}
				for _, name := range tt.not {
					delete(want, name)
				}
				if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
					t.Errorf("source (-want +got):\n%s", diff)
				}
				if left := b.changes(); len(left) != 0 {
					t.Errorf("left are the changes %q", left)
				}
			})
		}
	}
}

// TestWhatOthersChangeWhileItIsAppliedStaysAConflict has somebody else change the
// source, too, once the apply has placed what the sandbox changes again.
func TestWhatOthersChangeWhileItIsAppliedStaysAConflict(t *testing.T) {
	for name, others := range map[string]func(path string) error{
		"written":  func(path string) error { return os.WriteFile(path, []byte("by another"), 0o644) },
		"replaced": func(path string) error { return replaceFile(path, "by another") },
		"written, with its times put back": func(path string) error {
			st := statOf(t, path)
			var err error
			for err == nil && statOf(t, path).Ctim == st.Ctim { // the clock of files may be coarse
				err = errors.Join(os.WriteFile(path, []byte("other"), 0o644), os.Chtimes(path, time.Time{}, time.Unix(st.Mtim.Unix())))
			}
			return err
		},
		"removed":         os.Remove,
		"made executable": func(path string) error { return os.Chmod(path, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tree{"f": "1", "gone": "1", "was": "1"})
			var want tree
			b.agent(func(a *agent) {
				a.write("/f", "first")
				a.write("/new", "first")
				a.write("/was", "first")
				a.write("/made", "first")
				a.remove("/gone")
				_, err := b.applyLive(a, placed, func(a *agent) {
					a.write("/f", "second, longer")
					a.write("/new", "second, longer")
					a.write("/gone", "second, longer")
					a.remove("/was")
					a.remove("/made")
					for _, name := range []string{"f", "new", "was", "made"} {
						a.check(others(filepath.Join(b.dir, name)))
					}
					build(t, b.dir, tree{"gone": "other"})
				})
				a.check(err)
				want = snapshot(t, b.dir)
				r, err := b.applyLive(a, "", nil)
				inConflict := map[string]apply.Outcome{
					"/f": apply.Conflict, "/gone": apply.Conflict, "/new": apply.Conflict,
					"/was": apply.Conflict, "/made": apply.Kept,
				}
				if name == "removed" { // and so again what it was before the sandbox made it, or what the sandbox wants
					inConflict["/new"] = apply.Skipped
					delete(inConflict, "/was")
					delete(inConflict, "/made")
				}
				if diff := cmp.Diff(inConflict, outcomes(r)); diff != "" || !errdefs.Is(err, errdefs.Precondition) {
					t.Errorf("the next apply: %v, outcomes (-want +got):\n%s", err, diff)
				}
			})
			if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
		})
	}
}

// replaceFile puts another file in the place of the one at path.
func replaceFile(path, content string) error {
	if err := os.WriteFile(path+".tmp", []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
