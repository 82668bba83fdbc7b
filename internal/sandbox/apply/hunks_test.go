package apply_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// hunks returns the ids of the changes, by path.
func (b *bench) hunks() map[vpath.Path]hunk.Set {
	b.t.Helper()
	r, err := review.Open(b.box)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	sets := map[vpath.Path]hunk.Set{}
	for _, f := range r.Files() {
		c, err := r.Content(&f)
		if err != nil {
			b.t.Fatal(err)
		}
		sets[f.Path] = hunk.Of(&f, &c)
	}
	return sets
}

// applyHunks applies what the ids choose.
func (b *bench) applyHunks(o apply.Options, ids ...string) apply.Result {
	b.t.Helper()
	o.Hunks = ids
	r, err := apply.Changes(b.t.Context(), b.box, o)
	if err != nil {
		b.t.Fatalf("apply of hunks: %v\n%v", err, r)
	}
	return r
}

// numbered are lines 1 to 40, with others in place of some.
func numbered(others map[int]string) string {
	var b strings.Builder
	for i := 1; i <= 40; i++ {
		line, is := others[i]
		if !is {
			line = fmt.Sprintf("line %d\n", i)
		}
		b.WriteString(line)
	}
	return b.String()
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", filepath.Base(path), diff)
	}
}

// The result counts the hunks that a person saw, and pieces only of a hunk that was split.
func TestTheResultCountsHunksAsTheyAreShown(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ids   func(s hunk.Set) []string
		taken int
		all   int
	}{
		{"a whole hunk is one", func(s hunk.Set) []string { return []string{s.Text[0].ID} }, 1, 3},
		{"all pieces of a hunk are one", func(s hunk.Set) []string { return []string{s.Text[0].Pieces[0].ID, s.Text[0].Pieces[1].ID} }, 1, 3},
		{"a piece of a hunk is one of its pieces", func(s hunk.Set) []string { return []string{s.Text[0].Pieces[1].ID} }, 1, 4},
		{"a change of the mode is one, too", func(s hunk.Set) []string { return []string{s.Text[0].ID, s.Mode} }, 2, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"f": numbered(nil)})
			b.agent(func(a *agent) {
				a.write("/f", numbered(map[int]string{5: "five\n", 7: "seven\n", 30: "thirty\n"}))
				a.chmod("/f", 0o755)
			})
			digest := b.shown("")
			r := b.applyHunks(apply.Options{Reviewed: digest}, tt.ids(b.hunks()["/f"])...)
			if got := r.Paths[0]; got.Outcome != apply.Applied || got.Hunks != tt.taken || got.OfHunks != tt.all {
				t.Errorf("result = %+v, want %d of %d hunks", got, tt.taken, tt.all)
			}
		})
	}
}

func TestTheRestOfAFileStaysInTheSandbox(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil), "other": "1\n"})
	all := map[int]string{5: "five\n", 20: "twenty\n", 22: "twenty-two\n", 35: ""}
	b.agent(func(a *agent) {
		a.write("/f", numbered(all))
		a.chmod("/f", 0o755)
		a.write("/other", "2\n")
	})
	digest := b.shown("")
	set := b.hunks()["/f"]
	if len(set.Text) != 3 || set.Mode == "" || set.Whole == "" || len(set.Text[1].Pieces) != 2 {
		t.Fatalf("ids = %+v, want 3 hunks, of which the second has 2 pieces, and the mode", set)
	}

	r := b.applyHunks(apply.Options{Reviewed: digest}, set.Text[0].ID, set.Text[1].Pieces[1].ID)
	if len(r.Paths) != 1 || r.Paths[0].Outcome != apply.Applied || r.Paths[0].Hunks != 2 || r.Paths[0].OfHunks != 5 {
		t.Errorf("result = %+v, want 2 of 5 parts of /f", r.Paths)
	}
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n", 22: "twenty-two\n"}))
	if mode := statOf(t, filepath.Join(b.dir, "f")).Mode & 0o777; mode != 0o644 {
		t.Errorf("mode = %o although its change was not chosen", mode)
	}
	wantFile(t, filepath.Join(b.dir, "other"), "1\n")

	rest := b.hunks()["/f"]
	if len(rest.Text) != 2 || rest.Text[1].ID != set.Text[2].ID || rest.Mode != set.Mode || rest.Whole != set.Whole {
		t.Errorf("rest = %+v, want the other hunks of %+v under their ids", rest, set)
	}
	if r := b.applyHunks(apply.Options{Reviewed: digest}, rest.Mode); r.Paths[0].Hunks != 1 || r.Paths[0].OfHunks != 3 {
		t.Errorf("result = %+v, want 1 of 3 parts of /f", r.Paths)
	}
	if mode := statOf(t, filepath.Join(b.dir, "f")).Mode & 0o777; mode != 0o755 {
		t.Errorf("mode = %o after its change was chosen", mode)
	}
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n", 22: "twenty-two\n"}))
	if got := b.applied(digest, "/f"); len(got) != 0 {
		t.Errorf("the rest of what was shown: %v, want it applied", got)
	}
	wantFile(t, filepath.Join(b.dir, "f"), numbered(all))
	if got := b.changes(); !slices.Equal(got, []string{"M /other"}) {
		t.Errorf("left %q", got)
	}
}

func TestHunksOfAnotherVersionAreLeftOut(t *testing.T) {
	first, second := map[int]string{5: "five\n", 30: "thirty\n"}, map[int]string{5: "FIVE\n", 30: "thirty\n"}
	for _, tt := range []struct {
		name string
		ids  func(hunk.Set) []string
		// reviewed and latest are what is applied with the digest of the first version and without.
		reviewed, latest map[int]string
	}{
		{"a hunk that is another now", func(s hunk.Set) []string { return []string{s.Text[0].ID} }, nil, nil},
		{"a hunk that is the same in another file", func(s hunk.Set) []string { return []string{s.Text[1].ID} }, nil, map[int]string{30: "thirty\n"}},
		{"both", func(s hunk.Set) []string { return []string{s.Text[0].ID, s.Text[1].ID} }, nil, nil},
		{"the whole file", func(s hunk.Set) []string { return []string{s.Whole} }, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"f": numbered(nil), "g": "1\n"})
			b.agent(func(a *agent) {
				a.write("/f", numbered(first))
				a.write("/g", "2\n")
			})
			digest := b.shown("")
			sets := b.hunks()
			ids := append(tt.ids(sets["/f"]), sets["/g"].Whole)
			b.agent(func(a *agent) { a.write("/f", numbered(second)) })
			got := outcomes(b.applyHunks(apply.Options{Reviewed: digest}, ids...))
			if want := map[string]apply.Outcome{"/f": apply.ChangedSinceReview, "/g": apply.Applied}; !cmp.Equal(want, got) {
				t.Errorf("with the digest: %v, want %v", got, want)
			}
			wantFile(t, filepath.Join(b.dir, "f"), numbered(tt.reviewed))
			want := apply.ChangedSinceReview
			if tt.latest != nil {
				want = apply.Applied
			}
			if got := outcomes(b.applyHunks(apply.Options{}, ids[:len(ids)-1]...))["/f"]; got != want {
				t.Errorf("without a digest: %v, want %v", got, want)
			}
			wantFile(t, filepath.Join(b.dir, "f"), numbered(tt.latest))
		})
	}
}

func TestIdsThatChooseNothing(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil), ".git/HEAD": "1", ".git/objects/": "", ".git/refs/heads/main": "1"})
	b.agent(func(a *agent) {
		a.write("/f", numbered(map[int]string{5: "five\n", 30: "thirty\n"}))
		a.write("/.git/HEAD", "2")
		a.write("/.git/refs/heads/main", "2")
	})
	sets := b.hunks()
	gone := strings.Repeat("0", 12) + "-" + strings.Repeat("0", 40)
	for _, tt := range []struct {
		name  string
		ids   []string
		paths []vpath.Path
		want  errdefs.Kind
	}{
		{"of no change", []string{sets["/f"].Text[0].ID, gone}, nil, errdefs.NotFound},
		{"no id at all", []string{"f"}, nil, errdefs.Invalid},
		{"an empty word", []string{""}, nil, errdefs.Invalid},
		{"beside paths", []string{sets["/f"].Text[0].ID}, []vpath.Path{"/f"}, errdefs.Invalid},
		{"a part of a repository", []string{sets["/f"].Text[0].ID, sets["/.git/HEAD"].Whole}, nil, errdefs.Precondition},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := apply.Changes(t.Context(), b.box, apply.Options{Hunks: tt.ids, Paths: tt.paths})
			if !errdefs.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			wantFile(t, filepath.Join(b.dir, "f"), numbered(nil))
		})
	}
	b.applyHunks(apply.Options{}, sets["/.git/HEAD"].Whole, sets["/.git/refs/heads/main"].Whole)
	wantFile(t, filepath.Join(b.dir, ".git/refs/heads/main"), "2")
}

// A file with two names in the sandbox is two files in the source, if a part of one is applied.
func TestAPartOfAFileWithTwoNames(t *testing.T) {
	b := newBench(t, tree{"a": numbered(nil)})
	all := map[int]string{5: "five\n", 30: "thirty\n"}
	b.agent(func(a *agent) {
		a.write("/a", numbered(all))
		a.link("/a", "/b")
	})
	sets := b.hunks()
	b.applyHunks(apply.Options{}, sets["/a"].Text[0].ID, sets["/b"].Whole)
	wantFile(t, filepath.Join(b.dir, "a"), numbered(map[int]string{5: "five\n"}))
	wantFile(t, filepath.Join(b.dir, "b"), numbered(all))
}

func TestChoosingWhatBelongsTogether(t *testing.T) {
	b := newBench(t, tree{"gone/x": "1", "gone/y": "1", "becomes/x": "1", "file": "1"})
	b.agent(func(a *agent) {
		a.removeAll("/gone")
		a.removeAll("/becomes")
		a.write("/becomes", "a file")
		a.remove("/file")
		a.mkdir("/file")
		a.write("/file/x", "1")
		a.mkdir("/new")
		a.write("/new/x", "1")
		a.write("/new/y", "1")
	})
	sets := b.hunks()
	b.applyHunks(apply.Options{}, sets["/gone/x"].Whole, sets["/new/x"].Whole)
	want := tree{"gone/": "", "gone/y": "1", "becomes/": "", "becomes/x": "1", "file": "1", "new/": "", "new/x": "1"}
	if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
		t.Errorf("one of two files (-want +got):\n%s", diff)
	}
	if _, err := apply.Changes(t.Context(), b.box, apply.Options{Hunks: []string{sets["/file/x"].Whole}}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("a file in a directory that is a file in the source: %v, want a refusal", err)
	}
	// A directory goes with the last of its files, and before what takes its place.
	b.applyHunks(apply.Options{}, sets["/gone/y"].Whole, sets["/becomes"].Whole)
	want = tree{"becomes": "a file", "file": "1", "new/": "", "new/x": "1"}
	if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
		t.Errorf("with what belongs to them (-want +got):\n%s", diff)
	}
	if got := b.changes(); !slices.Equal(got, []string{"T /file", "A /file/x", "A /new/y"}) {
		t.Errorf("left %q", got)
	}
}

func TestAPartIsInConflictAsTheFileIs(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) { a.write("/f", numbered(map[int]string{5: "five\n", 30: "thirty\n"})) })
	id := b.hunks()["/f"].Text[0].ID
	edited := numbered(map[int]string{39: "a person's\n"})
	build(t, b.dir, tree{"f": edited})
	r, err := apply.Changes(t.Context(), b.box, apply.Options{Hunks: []string{id}})
	if !errdefs.Is(err, errdefs.Precondition) || outcomes(r)["/f"] != apply.Conflict {
		t.Errorf("%v, %v, want a conflict", outcomes(r), err)
	}
	wantFile(t, filepath.Join(b.dir, "f"), edited)
}

// What a killed apply has placed of a file is no change any more, and in no conflict with the rest.
func TestThePartThatAKilledApplyPlaced(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	all := map[int]string{5: "five\n", 30: "thirty\n"}
	b.agent(func(a *agent) { a.write("/f", numbered(all)) })
	set := b.hunks()["/f"]
	kill := func([]changes.Version) ([]vpath.Path, error) { return nil, errKilled }
	_, err := apply.Changes(t.Context(), b.box, apply.Options{Hunks: []string{set.Text[0].ID}, Drop: kill})
	if !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n"}))
	b.applyHunks(apply.Options{}, set.Text[1].ID)
	wantFile(t, filepath.Join(b.dir, "f"), numbered(all))
	if got := b.changes(); len(got) != 0 {
		t.Errorf("left %q", got)
	}
}

// What a killed apply has removed is no change any more: the sandbox sees a new file there.
func TestTheRemovalThatAKilledApplyMade(t *testing.T) {
	b := newBench(t, tree{"f": "1", "d/f": "1", "g": "1"})
	b.agent(func(a *agent) {
		a.remove("/f")
		a.removeAll("/d")
		a.write("/g", "2")
	})
	kill := func([]changes.Version) ([]vpath.Path, error) { return nil, errKilled }
	_, err := apply.Changes(t.Context(), b.box, apply.Options{Paths: []vpath.Path{"/f", "/d"}, Drop: kill})
	if !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if _, err := apply.Changes(t.Context(), b.box, apply.Options{Paths: []vpath.Path{"/f"}}); !errdefs.Is(err, errdefs.NotFound) {
		t.Fatal(err)
	}
	build(t, b.dir, tree{"f": "a person's", "d/other": "a person's"})
	if got := b.changes(); !slices.Equal(got, []string{"M /g"}) {
		t.Errorf("changes = %q, want that of /g alone", got)
	}
	b.agent(func(a *agent) {
		for _, p := range []vpath.Path{"/f", "/d/other"} {
			if _, err := a.stack.Lookup(p); err != nil {
				t.Errorf("the sandbox does not see what was made in the source: %v", err)
			}
		}
	})
}

// drawText draws lines of which some are the same.
func drawText(t *rapid.T) string {
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "{\r\n", "}\n", "\xff\n"}), 1, 30).Draw(t, "lines")
	return strings.TrimSuffix(strings.Join(lines, ""), rapid.SampledFrom([]string{"", "\n"}).Draw(t, "end"))
}

// drawHunks draws ids of some parts of the changes, and returns what each file of the source is
// to become; names are the files.
func drawHunks(t *rapid.T, n arena, names []string) (ids []string, want map[string]string) {
	want = map[string]string{}
	sets := n.hunks()
	for _, name := range names {
		set, changed := sets[vpath.Path("/"+name)]
		content, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want[name] = string(content)
		if !changed {
			continue
		}
		var chosen []textdiff.Hunk
		for _, h := range set.Text {
			switch pieces := h.Pieces; rapid.IntRange(0, 2).Draw(t, "choice") {
			case 0:
				ids, chosen = append(ids, h.ID), append(chosen, h.Hunk)
			case 1:
				if len(pieces) > 0 {
					i := rapid.IntRange(0, len(pieces)-1).Draw(t, "piece")
					ids, chosen = append(ids, pieces[i].ID), append(chosen, pieces[i].Hunk)
				}
			}
		}
		patched, err := textdiff.Patched(content, chosen)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = string(patched)
	}
	return ids, want
}

func TestApplyingHunkByHunkEqualsTheView(t *testing.T) {
	files := []string{"x", "y", "z"}
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, everything)
		defer done()
		for _, name := range files {
			build(t, n.dir, tree{name: drawText(rt)})
		}
		write := func() {
			n.agent(func(a *agent) {
				for _, name := range files {
					if rapid.IntRange(0, 2).Draw(rt, "write "+name) > 0 {
						a.write(vpath.Path("/"+name), drawText(rt))
					}
				}
			})
		}
		write()
		view := n.act(rt)
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			if rapid.IntRange(0, 3).Draw(rt, "go on inside") == 0 {
				write()
				view = n.act(rt)
			}
			ids, want := drawHunks(rt, n, files)
			for at, set := range n.hunks() {
				if !slices.Contains(files, at.Rel()) && set.Whole != "" && rapid.IntRange(0, 2).Draw(rt, "whole") == 0 {
					ids = append(ids, set.Whole)
				}
			}
			if len(ids) == 0 {
				continue
			}
			if _, err := apply.Changes(t.Context(), n.box, apply.Options{Hunks: ids}); err != nil && !errdefs.Is(err, errdefs.Precondition) {
				rt.Fatal(err)
			} else if err != nil { // a directory that is not chosen
				continue
			}
			for name, content := range want {
				if got, err := os.ReadFile(filepath.Join(n.dir, name)); err != nil || string(got) != content {
					rt.Fatalf("%s is %q, %v, want %q", name, got, err, content)
				}
			}
		}
		n.agent(func(a *agent) {
			if diff := cmp.Diff(view, (&actor{rt, a.stack, n.policy}).view()); diff != "" {
				rt.Fatalf("the sandbox lost something (-before +after):\n%s", diff)
			}
		})
		if _, err := apply.Changes(t.Context(), n.box, apply.Options{}); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(view, snapshot(t, n.dir)); diff != "" {
			rt.Fatalf("source (-view +source):\n%s", diff)
		}
	})
}
