package apply_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// resultAt is the result at a path.
func resultAt(r apply.Result, p vpath.Path) apply.PathResult {
	for _, one := range r.Paths {
		if one.Path == p {
			return one
		}
	}
	return apply.PathResult{}
}

// changedInBoth is a bench with a text of which the person has changed the third line, and the
// sandbox that line, to others, and the last line.
func changedInBoth(t *testing.T) *bench {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) {
		a.write("/f", numbered(map[int]string{3: "sandbox\n", 40: "last\n"}))
		a.write("/other", "new")
	})
	write(t, filepath.Join(b.dir, "f"), numbered(map[int]string{1: "first\n", 3: "person\n"}))
	return b
}

func TestTextChangedInBothIsMerged(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil), "same": numbered(nil)})
	b.agent(func(a *agent) {
		a.write("/f", numbered(map[int]string{30: "thirty\n"}))
		a.chmod("/f", 0o755)
		a.write("/same", numbered(map[int]string{5: "five\n"}))
	})
	mine := numbered(map[int]string{5: "five\n"})
	write(t, filepath.Join(b.dir, "f"), mine)
	write(t, filepath.Join(b.dir, "same"), numbered(map[int]string{5: "five\n", 30: "thirty\n"}))
	want := numbered(map[int]string{5: "five\n", 30: "thirty\n"})

	r, err := apply.Changes(t.Context(), b.box, apply.Options{DryRun: true})
	if p := resultAt(r, "/f"); err != nil || p.Outcome != apply.Applied || !p.Merged || p.Conflicts != 0 {
		t.Errorf("dry run: %v, %+v", err, r.Paths)
	}
	wantFile(t, filepath.Join(b.dir, "f"), mine)

	r = b.apply()
	if p := resultAt(r, "/f"); p.Outcome != apply.Applied || !p.Merged || p.Overwrote {
		t.Errorf("result = %+v, want it merged", p)
	}
	if p := resultAt(r, "/same"); p.Outcome != apply.Present || p.Merged {
		t.Errorf("result = %+v, want it present: the source has all of the change", p)
	}
	wantFile(t, filepath.Join(b.dir, "f"), want)
	if mode := statOf(t, filepath.Join(b.dir, "f")).Mode & 0o777; mode != 0o755 {
		t.Errorf("mode = %o, want the sandbox's", mode)
	}
	if left := b.changes(); len(left) != 0 {
		t.Errorf("left %q", left)
	}
	if r.Growth.Files != 0 || r.Growth.Bytes != int64(len(want)-len(mine)) {
		t.Errorf("growth = %+v, want %d bytes", r.Growth, len(want)-len(mine))
	}

	b.mustReverse(false)
	wantFile(t, filepath.Join(b.dir, "f"), mine)
	b.agent(func(a *agent) { a.check(a.stack.Drop()) })
	if got := b.changes(); !cmp.Equal(got, []string{"M /f"}) {
		t.Errorf("after undo the sandbox has %q, want its change of /f", got)
	}
	b.mustReverse(true)
	wantFile(t, filepath.Join(b.dir, "f"), want)
}

func TestModesAreMerged(t *testing.T) {
	for _, tt := range []struct {
		name            string
		sandbox, person os.FileMode
		how             conflict.Resolution
		want            os.FileMode
		kind            conflict.Kind
	}{
		{name: "only the sandbox changed it", sandbox: 0o600, person: 0o644, want: 0o600},
		{name: "only the source changed it", sandbox: 0o644, person: 0o755, want: 0o755},
		{name: "both made the same of it", sandbox: 0o600, person: 0o600, want: 0o600},
		{name: "both changed it", sandbox: 0o600, person: 0o755, want: 0o755, kind: conflict.Mode},
		{name: "both changed it, and the source wins", sandbox: 0o600, person: 0o755, how: conflict.Ours, want: 0o755},
		{name: "both changed it, and the sandbox wins", sandbox: 0o600, person: 0o755, how: conflict.Theirs, want: 0o600},
		{name: "markers cannot be placed in a mode", sandbox: 0o600, person: 0o755, how: conflict.Markers, want: 0o755, kind: conflict.Mode},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"f": "1\n2\n3\n"})
			b.agent(func(a *agent) { a.write("/f", "1\n2\nthree\n"); a.chmod("/f", uint32(tt.sandbox)) })
			write(t, filepath.Join(b.dir, "f"), "one\n2\n3\n")
			if err := os.Chmod(filepath.Join(b.dir, "f"), tt.person); err != nil {
				t.Fatal(err)
			}
			r, err := apply.Changes(t.Context(), b.box, apply.Options{OnConflict: tt.how})
			if p := resultAt(r, "/f"); p.Kind != tt.kind || (err == nil) != (tt.kind == "") {
				t.Errorf("%v, %+v, want kind %q", err, p, tt.kind)
			}
			if got := statOf(t, filepath.Join(b.dir, "f")).Mode & 0o777; got != uint32(tt.want) {
				t.Errorf("mode = %o, want %o", got, tt.want)
			}
		})
	}
}

func TestConflictsAreNamedByKind(t *testing.T) {
	all := []policy.Rule{{Pattern: "**", Permission: policy.Write}, {Pattern: "**/secret", Permission: policy.None, Priority: 10}}
	tests := []struct {
		name   string
		source tree
		agent  func(a *agent)
		person func(t *testing.T, dir string)
		path   vpath.Path
		want   conflict.Kind
	}{
		{
			"text",
			tree{"f": "1\n"},
			func(a *agent) { a.write("/f", "2\n") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "3\n") }, "/f", conflict.Text,
		},
		{
			"binary",
			tree{"f": "1\x00\n"},
			func(a *agent) { a.write("/f", "2\x00\n") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "3\x00\n") }, "/f", conflict.Binary,
		},
		{
			"a file of git",
			tree{".git/HEAD": "1\n", ".git/objects/": "", ".git/refs/": "", ".git/config": "1\n2\n3\n"},
			func(a *agent) { a.write("/.git/config", "one\n2\n3\n") },
			func(t *testing.T, dir string) { write(t, dir+"/.git/config", "1\n2\nthree\n") }, "/.git/config", conflict.Binary,
		},
		{
			"deleted in the source",
			tree{"f": "1\n"},
			func(a *agent) { a.write("/f", "2\n") },
			func(t *testing.T, dir string) { os.Remove(dir + "/f") }, "/f", conflict.DeleteModify,
		},
		{
			"deleted in the sandbox",
			tree{"f": "1\n"},
			func(a *agent) { a.remove("/f") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "3\n") }, "/f", conflict.DeleteModify,
		},
		{
			"renamed in the sandbox",
			tree{"f": "one line\nanother line\n"},
			func(a *agent) { a.rename("/f", "/g") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "3\n") }, "/f", conflict.RenameEdit,
		},
		{
			"another type in the source",
			tree{"f": "1\n"},
			func(a *agent) { a.write("/f", "2\n") },
			func(t *testing.T, dir string) { os.Remove(dir + "/f"); os.Symlink("x", dir+"/f") }, "/f", conflict.TypeChange,
		},
		{
			"another type in the sandbox",
			tree{"f": "1\n"},
			func(a *agent) { a.remove("/f"); a.symlink("x", "/f") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "3\n") }, "/f", conflict.TypeChange,
		},
		{
			"made in both",
			tree{},
			func(a *agent) { a.write("/f", "2\n") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "3\n") }, "/f", conflict.BothAdded,
		},
		{
			"the mode of a directory",
			tree{"d/": ""},
			func(a *agent) { a.chmod("/d", 0o700) },
			func(t *testing.T, dir string) { os.Chmod(dir+"/d", 0o711) }, "/d", conflict.Mode,
		},
		{
			"a directory that is gone",
			tree{"d/": ""},
			func(a *agent) { a.write("/d/f", "2\n") },
			func(t *testing.T, dir string) { os.Remove(dir + "/d") }, "/d/f", conflict.Directory,
		},
		{
			"hidden entries below",
			tree{"d/f": "1\n", "d/secret": "1\n"},
			func(a *agent) { a.removeAll("/d"); a.write("/d", "2\n") },
			func(*testing.T, string) {}, "/d", conflict.HiddenBelow,
		},
		{
			"a large file",
			tree{"f": strings.Repeat("a", 1<<20) + "\n"},
			func(a *agent) { a.write("/f", "2\n") },
			func(t *testing.T, dir string) { write(t, dir+"/f", strings.Repeat("b", 17<<20)) }, "/f", "",
		},
	}
	for _, tt := range tests {
		for _, how := range []conflict.Resolution{conflict.Merge, conflict.Markers} {
			t.Run(tt.name, func(t *testing.T) {
				b := newBench(t, tt.source, all...)
				b.agent(func(a *agent) {
					tt.agent(a)
					a.write("/other", "new")
				})
				tt.person(t, b.dir)
				before := snapshot(t, b.dir)
				r, err := apply.Changes(t.Context(), b.box, apply.Options{OnConflict: how})
				p := resultAt(r, tt.path)
				if tt.want == conflict.Text && how == conflict.Markers {
					if err != nil || !p.Merged || p.Conflicts != 1 {
						t.Errorf("with markers: %v, %+v", err, p)
					}
					return
				}
				if want := tt.want; !errdefs.Is(err, errdefs.Precondition) || p.Outcome != apply.Conflict || want != "" && p.Kind != want {
					t.Errorf("%v, %+v, want a conflict of kind %q", err, p, want)
				}
				if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
					t.Errorf("the source changed (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// Nothing is merged in a directory that is in conflict: what a merge would place there is one with
// it, as any other change.
func TestNothingIsMergedBelowAConflict(t *testing.T) {
	b := newBench(t, tree{"d/text": numbered(nil), "d/binary": "x:\x00"})
	b.agent(func(a *agent) {
		a.chmod("/d", 0o700)
		a.write("/d/text", numbered(map[int]string{3: "sandbox\n"}))
		a.write("/d/binary", "\x001")
	})
	if err := os.Chmod(filepath.Join(b.dir, "d"), 0o711); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(b.dir, "d/text"), numbered(map[int]string{40: "person\n"}))
	write(t, filepath.Join(b.dir, "d/binary"), "\x002")
	r, err := apply.Changes(t.Context(), b.box, apply.Options{OnConflict: conflict.Theirs})
	if !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("error = %v, want a precondition", err)
	}
	for p, want := range map[vpath.Path]conflict.Kind{"/d": conflict.Mode, "/d/text": conflict.Directory, "/d/binary": conflict.Directory} {
		if got := resultAt(r, p); got.Outcome != apply.Conflict || got.Kind != want {
			t.Errorf("%s is %s of kind %q, want a conflict of kind %q", p, got.Outcome, got.Kind, want)
		}
	}
}

func TestConflictingLinesAreResolved(t *testing.T) {
	lines := func(third string) string { return numbered(map[int]string{1: "first\n", 3: third, 40: "last\n"}) }
	for _, tt := range []struct {
		name string
		how  conflict.Resolution
		want string
	}{
		{"the source's lines win", conflict.Ours, lines("person\n")},
		{"the sandbox's lines win", conflict.Theirs, lines("sandbox\n")},
		{"both are placed", conflict.Markers, lines("<<<<<<< source\nperson\n=======\nsandbox\n>>>>>>> sandbox fix\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := changedInBoth(t)
			was, err := os.ReadFile(filepath.Join(b.dir, "f"))
			if err != nil {
				t.Fatal(err)
			}
			r, err := apply.Changes(t.Context(), b.box, apply.Options{})
			if !errdefs.Is(err, errdefs.Precondition) || resultAt(r, "/f").Kind != conflict.Text || !strings.Contains(resultAt(r, "/f").Reason, "1 place") {
				t.Fatalf("unasked: %v, %+v", err, r.Paths)
			}
			r, err = apply.Changes(t.Context(), b.box, apply.Options{OnConflict: tt.how})
			if p := resultAt(r, "/f"); err != nil || !p.Merged || p.Conflicts != 1 {
				t.Fatalf("%v, %+v", err, r.Paths)
			}
			wantFile(t, filepath.Join(b.dir, "f"), tt.want)
			wantFile(t, filepath.Join(b.dir, "other"), "new")
			if left := b.changes(); len(left) != 0 {
				t.Errorf("left %q", left)
			}
			b.mustReverse(false)
			wantFile(t, filepath.Join(b.dir, "f"), string(was))
		})
	}
}

func TestOfABinaryOneVersionWins(t *testing.T) {
	for _, tt := range []struct {
		name string
		how  conflict.Resolution
		want string
		left []string
	}{
		{"the source's, and the sandbox keeps its own", conflict.Ours, "3\x00", []string{"M /f"}},
		{"the sandbox's", conflict.Theirs, "2\x00", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"f": "1\x00"})
			b.agent(func(a *agent) { a.write("/f", "2\x00"); a.write("/other", "new") })
			write(t, filepath.Join(b.dir, "f"), "3\x00")
			if _, err := apply.Changes(t.Context(), b.box, apply.Options{OnConflict: tt.how}); err != nil {
				t.Fatal(err)
			}
			wantFile(t, filepath.Join(b.dir, "f"), tt.want)
			wantFile(t, filepath.Join(b.dir, "other"), "new")
			if left := b.changes(); !slices.Equal(left, tt.left) {
				t.Errorf("left %q, want %q", left, tt.left)
			}
		})
	}
}

func TestTheSandboxKeepsAModeThatLosesToTheSource(t *testing.T) {
	b := newBench(t, tree{"f": "1\n"})
	b.agent(func(a *agent) { a.chmod("/f", 0o600) })
	if err := os.Chmod(filepath.Join(b.dir, "f"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := apply.Changes(t.Context(), b.box, apply.Options{OnConflict: conflict.Ours})
	if p := resultAt(r, "/f"); err != nil || p.Outcome != apply.Skipped {
		t.Errorf("%v, %+v, want it skipped", err, p)
	}
	if got := statOf(t, filepath.Join(b.dir, "f")).Mode & 0o777; got != 0o755 {
		t.Errorf("mode = %o, want 755", got)
	}
	if left := b.changes(); !slices.Equal(left, []string{"M /f"}) {
		t.Errorf("left %q, want the mode of /f", left)
	}
}

func TestOnlyWhatWasReviewedIsMerged(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) { a.write("/f", numbered(map[int]string{30: "thirty\n"})) })
	digest := b.shown("")
	b.agent(func(a *agent) { a.write("/f", numbered(map[int]string{30: "THIRTY\n"})) })
	mine := numbered(map[int]string{5: "five\n"})
	write(t, filepath.Join(b.dir, "f"), mine)
	for _, how := range []conflict.Resolution{conflict.Merge, conflict.Ours, conflict.Theirs, conflict.Markers} {
		for _, dry := range []bool{true, false} {
			r, err := apply.Changes(t.Context(), b.box, apply.Options{Reviewed: digest, OnConflict: how, DryRun: dry})
			if err != nil || resultAt(r, "/f").Outcome != apply.ChangedSinceReview {
				t.Errorf("%d: %v, %+v", how, err, r.Paths)
			}
			wantFile(t, filepath.Join(b.dir, "f"), mine)
		}
	}
}

// A part of a file that has changed in the source is no part of the merged file.
func TestNoPartOfAMergedFileIsApplied(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) { a.write("/f", numbered(map[int]string{5: "five\n", 30: "thirty\n"})) })
	set := b.hunks()["/f"]
	mine := numbered(map[int]string{20: "twenty\n"})
	write(t, filepath.Join(b.dir, "f"), mine)
	r, err := apply.Changes(t.Context(), b.box, apply.Options{Hunks: []string{set.Text[0].ID}, OnConflict: conflict.Theirs})
	if !errdefs.Is(err, errdefs.Precondition) || resultAt(r, "/f").Kind != conflict.Text {
		t.Errorf("%v, %+v, want a conflict", err, r.Paths)
	}
	wantFile(t, filepath.Join(b.dir, "f"), mine)
	b.applyHunks(apply.Options{}, set.Whole)
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n", 20: "twenty\n", 30: "thirty\n"}))
}

// gitMerge is what "git merge-file" makes of the versions, and how many conflicts it finds.
func gitMerge(t *rapid.T, dir, base, ours, theirs string) (text string, conflicts int) {
	for name, content := range map[string]string{"base": base, "ours": ours, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "merge-file", "-p", "-q", "-L", "source", "-L", "base", "-L", "sandbox fix", "ours", "base", "theirs")
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// drawEdit draws what somebody makes of a text: some lines are removed, replaced or added.
func drawEdit(t *rapid.T, text, who string) string {
	lines := strings.SplitAfter(text, "\n")
	for range rapid.IntRange(0, 3).Draw(t, who+" edits") {
		at := rapid.IntRange(0, len(lines)).Draw(t, "line")
		end := min(len(lines), at+rapid.IntRange(0, 2).Draw(t, "removed"))
		var with []string
		for range rapid.IntRange(0, 2).Draw(t, "added") {
			with = append(with, rapid.SampledFrom([]string{who + "\n", "a\n", "\n", "}\n"}).Draw(t, "text"))
		}
		lines = append(append(lines[:at:at], with...), lines[end:]...)
	}
	return strings.Join(lines, "")
}

func TestApplyMergesAsGitDoes(t *testing.T) {
	testenv.Command(t, "git")
	scratch := t.TempDir()
	files := []string{"x", "y", "z"}
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, everything)
		defer done()
		base, ours, theirs := tree{}, tree{}, tree{}
		for _, name := range files {
			base[name] = drawText(rt)
		}
		build(t, n.dir, base)
		n.agent(func(a *agent) {
			for _, name := range files {
				theirs[name] = drawEdit(rt, base[name], "sandbox")
				a.write(vpath.Path("/"+name), theirs[name])
			}
		})
		for _, name := range files {
			ours[name] = drawEdit(rt, base[name], "person")
			write(t, filepath.Join(n.dir, name), ours[name])
		}
		merged, marked := tree{}, tree{}
		var conflicts []string
		for _, name := range files {
			text, count := gitMerge(rt, scratch, base[name], ours[name], theirs[name])
			if merged[name] = text; count > 0 {
				conflicts = append(conflicts, "/"+name)
			}
			marked[name] = text
		}
		r, err := apply.Changes(t.Context(), n.box, apply.Options{})
		var found []string
		for _, p := range r.Paths {
			if p.Outcome == apply.Conflict {
				found = append(found, string(p.Path))
			}
		}
		if diff := cmp.Diff(conflicts, found); diff != "" || (err == nil) != (conflicts == nil) {
			rt.Fatalf("%v, conflicts (-git +apply):\n%s", err, diff)
		}
		if err != nil {
			for _, name := range files {
				if got := read(t, n.dir, name); got != ours[name] {
					rt.Fatalf("%s is %q although nothing was applied, want %q", name, got, ours[name])
				}
			}
			if _, err := apply.Changes(t.Context(), n.box, apply.Options{OnConflict: conflict.Markers}); err != nil {
				rt.Fatal(err)
			}
			merged = marked
		}
		for _, name := range files {
			if got := read(t, n.dir, name); got != merged[name] {
				rt.Fatalf("%s is %q, want %q", name, got, merged[name])
			}
		}
		if _, entries := n.history(); len(entries) == 0 {
			return // nothing was to be changed
		}
		n.mustReverse(false)
		for _, name := range files {
			if got := read(t, n.dir, name); got != ours[name] {
				rt.Fatalf("after undo %s is %q, want %q", name, got, ours[name])
			}
		}
	})
}

// A sandbox that only changed the mode of a file that the source has changed does not change it
// back.
func TestAModeIsMergedWithANewContent(t *testing.T) {
	b := newBench(t, tree{"f": "old\n"})
	b.agent(func(a *agent) { a.chmod("/f", 0o755) })
	digest := b.shown("")
	write(t, filepath.Join(b.dir, "f"), "new\n")
	r, err := apply.Changes(t.Context(), b.box, apply.Options{Reviewed: digest})
	if p := resultAt(r, "/f"); err != nil || !p.Merged {
		t.Errorf("%v, %+v, want it merged", err, r.Paths)
	}
	if diff := cmp.Diff(tree{"f": "x:new\n"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	b.mustReverse(false)
	if diff := cmp.Diff(tree{"f": "new\n"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("after undo (-want +got):\n%s", diff)
	}
}

func TestTheMergedTextsOfAnApplyAreBounded(t *testing.T) {
	apply.SetMergeBytes(t, 2*len(numbered(nil))+20)
	files := []string{"a", "b", "c"}
	b := newBench(t, tree{"a": numbered(nil), "b": numbered(nil), "c": numbered(nil)})
	b.agent(func(a *agent) {
		for _, name := range files {
			a.write(vpath.Path("/"+name), numbered(map[int]string{30: "thirty\n"}))
		}
	})
	for _, name := range files {
		write(t, filepath.Join(b.dir, name), numbered(map[int]string{5: "five\n"}))
	}
	r, err := apply.Changes(t.Context(), b.box, apply.Options{})
	if p := resultAt(r, "/c"); !errdefs.Is(err, errdefs.Precondition) || p.Kind != conflict.TooLarge {
		t.Errorf("%v, %+v, want /c too large", err, r.Paths)
	}
	b.apply("/a", "/b")
	b.apply("/c")
	wantFile(t, filepath.Join(b.dir, "c"), numbered(map[int]string{5: "five\n", 30: "thirty\n"}))
}
