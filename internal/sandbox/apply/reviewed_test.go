package apply_test

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// shown has all that changed at the paths shown, and returns its digest.
func (b *bench) shown(base string, paths ...vpath.Path) string {
	b.t.Helper()
	r, err := review.Open(b.box, paths...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	for i := range r.Files() {
		if _, err := gitpatch.Write(io.Discard, r, &r.Files()[i]); err != nil {
			b.t.Fatal(err)
		}
	}
	digest, err := r.Remember(base, r.Files())
	if err != nil {
		b.t.Fatal(err)
	}
	return digest
}

// rewrite writes as many other bytes to p and sets its time back.
func (a *agent) rewrite(p vpath.Path, content string) {
	a.t.Helper()
	info, err := a.stack.Lookup(p)
	a.check(err)
	if int64(len(content)) != info.Size {
		a.t.Fatalf("%s has %d bytes, not as many as %q", p, info.Size, content)
	}
	a.write(p, content)
	_, err = a.stack.SetAttr(p, layer.SetAttr{Mtime: &info.Mtime})
	a.check(err)
}

// applied applies what digest names and returns the outcomes, but for Applied.
func (b *bench) applied(digest string, paths ...vpath.Path) map[string]apply.Outcome {
	b.t.Helper()
	r, err := apply.Changes(b.t.Context(), b.box, apply.Options{Paths: paths, Reviewed: digest})
	if err != nil {
		b.t.Fatal(err)
	}
	got := outcomes(r)
	maps.DeleteFunc(got, func(_ string, o apply.Outcome) bool { return o == apply.Applied })
	return got
}

// TestWhatIsAppliedIsWhatWasShown rewrites after the review, also with the same
// size and time, and applies what was shown.
func TestWhatIsAppliedIsWhatWasShown(t *testing.T) {
	const left, skipped = apply.ChangedSinceReview, apply.Skipped
	type outcome = map[string]apply.Outcome
	source := tree{"f": "1\n", "g": "1\n", "d/a": "a\n", "d/b": "b\n", "link": "-> f", "x": "x\n"}
	for _, tt := range []struct {
		name          string
		before, after func(a *agent)
		want          outcome
		is            tree // of the source, where it is not what was shown
	}{
		{
			"nothing", func(a *agent) { a.write("/f", "2\n"); a.remove("/g"); a.mkdir("/new"); a.write("/new/n", "n") },
			func(*agent) {},
			outcome{},
			tree{"f": "2\n", "g": "", "new/": "", "new/n": "n"},
		},
		{
			"a content, its size and time kept", func(a *agent) { a.write("/f", "2\n"); a.write("/x", "y\n") },
			func(a *agent) { a.rewrite("/f", "3\n") },
			outcome{"/f": left},
			tree{"x": "y\n"},
		},
		{
			"a new file", func(a *agent) { a.write("/f", "2\n") },
			func(a *agent) { a.write("/n", "n") },
			outcome{"/n": left},
			tree{"f": "2\n"},
		},
		{
			"a new file in a directory that was shown", func(a *agent) { a.mkdir("/new"); a.write("/new/n", "n") },
			func(a *agent) { a.write("/new/m", "m") },
			outcome{"/new/m": left},
			tree{"new/": "", "new/n": "n"},
		},
		{
			"a new directory", func(a *agent) { a.write("/f", "2\n") },
			func(a *agent) { a.mkdir("/new"); a.write("/new/m", "m") },
			outcome{"/new": left, "/new/m": left},
			tree{"f": "2\n"},
		},
		{
			"a mode", func(a *agent) { a.write("/f", "2\n"); a.write("/x", "y\n") },
			func(a *agent) { a.chmod("/f", 0o755) },
			outcome{"/f": left},
			tree{"x": "y\n"},
		},
		{
			"a mode back", func(a *agent) { a.chmod("/f", 0o755) },
			func(a *agent) { a.chmod("/f", 0o644) },
			outcome{"/f": left},
			nil,
		},
		{
			"a content where the mode was shown", func(a *agent) { a.chmod("/f", 0o755) },
			func(a *agent) { a.write("/f", "3\n") },
			outcome{"/f": left},
			nil,
		},
		{
			"a content back where both were shown", func(a *agent) { a.write("/f", "2\n"); a.chmod("/f", 0o755) },
			func(a *agent) { a.write("/f", "1\n") },
			outcome{"/f": left},
			nil,
		},
		{
			"a file that is a link now", func(a *agent) { a.write("/f", "2\n") },
			func(a *agent) { a.remove("/f"); a.symlink("/etc/passwd", "/f") },
			outcome{"/f": left},
			nil,
		},
		{
			"a link that leads elsewhere", func(a *agent) { a.remove("/link"); a.symlink("g", "/link") },
			func(a *agent) { a.remove("/link"); a.symlink("/etc/passwd", "/link") },
			outcome{"/link": left},
			nil,
		},
		{
			"a deletion", func(a *agent) { a.write("/f", "2\n") },
			func(a *agent) { a.remove("/g") },
			outcome{"/g": left},
			tree{"f": "2\n"},
		},
		{
			"a deletion that is none", func(a *agent) { a.remove("/g") },
			func(a *agent) { a.write("/g", "5\n") },
			outcome{"/g": left},
			nil,
		},
		{
			"a deleted directory, of which one was shown", func(a *agent) { a.remove("/d/a") },
			func(a *agent) { a.remove("/d/b"); a.removeAll("/d") },
			outcome{"/d": left, "/d/b": left},
			tree{"d/a": ""},
		},
		{
			"a file in place of a directory", func(a *agent) { a.remove("/d/a"); a.remove("/d/b"); a.removeAll("/d"); a.write("/d", "file") },
			func(a *agent) { a.rewrite("/d", "FILE") },
			outcome{"/d": left, "/d/a": left, "/d/b": left},
			nil,
		},
		{
			"what is gone", func(a *agent) { a.write("/n", "n"); a.write("/x", "y\n") },
			func(a *agent) { a.remove("/n") },
			outcome{"/n": left},
			tree{"x": "y\n"},
		},
		{
			"the new name of a renamed file", func(a *agent) { a.rename("/f", "/n"); a.write("/x", "y\n") },
			func(a *agent) { a.write("/n", "else") },
			outcome{"/n": left, "/f": skipped},
			tree{"x": "y\n"},
		},
		{
			"a renamed file, renamed again", func(a *agent) { a.rename("/f", "/n") },
			func(a *agent) { a.rename("/n", "/m") },
			outcome{"/n": left, "/m": left, "/f": skipped},
			nil,
		},
		{
			"a file in a renamed directory", func(a *agent) { a.rename("/d", "/e") },
			func(a *agent) { a.write("/e/a", "else") },
			outcome{"/e/a": left, "/d": skipped, "/d/a": skipped, "/d/b": skipped},
			tree{"e/": "", "e/b": "b\n"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, source)
			b.agent(tt.before)
			digest := b.shown("")
			b.agent(tt.after)
			dry, err := apply.Changes(t.Context(), b.box, apply.Options{Reviewed: digest, DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			foretold := outcomes(dry)
			maps.DeleteFunc(foretold, func(_ string, o apply.Outcome) bool { return o == apply.Applied })
			if diff := cmp.Diff(tt.want, foretold); diff != "" {
				t.Errorf("dry run (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, b.applied(digest)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			want := maps.Clone(source)
			want["d/"] = ""
			maps.Copy(want, tt.is)
			maps.DeleteFunc(want, func(name, content string) bool {
				return content == "" && name != "d/" && name != "new/" && name != "e/"
			})
			if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
			// What was left out is still there, and can be taken as it is now.
			if len(tt.want) > 0 && tt.name != "a mode back" {
				if _, err := apply.Changes(t.Context(), b.box, apply.Options{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAPartThatWasShown merges what is shown of a part into what was before.
func TestAPartThatWasShown(t *testing.T) {
	b := newBench(t, tree{"f": "1\n", "g": "1\n"})
	b.agent(func(a *agent) { a.write("/f", "2\n"); a.mkdir("/d"); a.write("/d/n", "n") })
	part := b.shown("", "/d/n")
	all := b.shown(part, "/f")
	if again := b.shown(""); again != all {
		t.Errorf("both parts are %s, all at once is %s", all, again)
	}
	b.agent(func(a *agent) { a.write("/g", "2\n"); a.rewrite("/f", "3\n") })
	if diff := cmp.Diff(map[string]apply.Outcome{"/f": apply.ChangedSinceReview, "/g": apply.ChangedSinceReview}, b.applied(part)); diff != "" {
		t.Error(diff)
	}
	now := b.shown(all, "/f") // and /d/n was applied, not removed
	if diff := cmp.Diff(map[string]apply.Outcome{"/g": apply.ChangedSinceReview}, b.applied(now)); diff != "" {
		t.Error(diff)
	}
}

// TestWhatAUserTookAwayWasNotRemoved applies and discards parts of what was shown.
func TestWhatAUserTookAwayWasNotRemoved(t *testing.T) {
	b := newBench(t, tree{"f": "1\n", "g": "1\n", "h": "1\n"})
	b.agent(func(a *agent) { a.write("/f", "2\n"); a.write("/g", "2\n"); a.write("/h", "2\n") })
	digest := b.shown("")
	if got := b.applied(digest, "/f"); len(got) > 0 {
		t.Errorf("apply /f: %v", got)
	}
	if _, err := apply.Discard(b.box, apply.DiscardOptions{Paths: []vpath.Path{"/g"}}); err != nil {
		t.Fatal(err)
	}
	if got := b.applied(digest); len(got) > 0 {
		t.Errorf("apply the rest: %v", got)
	}
}

// TestReviewsAreBounded shows more states than are kept.
func TestReviewsAreBounded(t *testing.T) {
	b := newBench(t, tree{})
	var digests []string
	for i := range 40 {
		b.agent(func(a *agent) { a.write("/f", string(rune('a'+i))) })
		digests = append(digests, b.shown(""))
	}
	entries, err := os.ReadDir(filepath.Join(b.box.Dir(), "reviews"))
	if err != nil || len(entries) != 32 {
		t.Errorf("%d reviews are kept: %v", len(entries), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 || !slices.Contains(digests, e.Name()) {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	for digest, want := range map[string]errdefs.Kind{digests[0]: errdefs.NotFound, "sha256:1": errdefs.Invalid, "../sandbox.json": errdefs.Invalid} {
		if _, err := apply.Changes(t.Context(), b.box, apply.Options{Reviewed: digest}); !errdefs.Is(err, want) {
			t.Errorf("apply %s: %v, want %s", digest, err, want)
		}
	}
	last := digests[len(digests)-1]
	if err := os.WriteFile(filepath.Join(b.box.Dir(), "reviews", last), []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := apply.Changes(t.Context(), b.box, apply.Options{Reviewed: last}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("apply of a damaged review: %v", err)
	}
}

// TestARewriteWhileItIsApplied has a live sandbox write to what is being copied.
func TestARewriteWhileItIsApplied(t *testing.T) {
	b := newBench(t, tree{"f": "1\n", "z": "1\n"})
	b.agent(func(a *agent) {
		a.mkdir("/d")
		a.write("/f", "2\n")
		a.write("/z", "2\n")
		for _, shown := range []bool{false, true} { // as it is at the start, and as it was shown
			digest := ""
			if shown {
				digest = b.shown("")
			}
			r, err := apply.Changes(t.Context(), b.box, apply.Options{
				Paths: []vpath.Path{"/d", "/f"}, Reviewed: digest, AtStart: true,
				Drop: func([]changes.Version) ([]vpath.Path, error) { return nil, nil },
				Progress: func(tried, _ int) {
					if tried == 1 {
						a.rewrite("/f", "3\n")
					}
				},
			})
			if err != nil || outcomes(r)["/f"] != apply.ChangedSinceReview {
				t.Errorf("apply: %v, %v", outcomes(r), err)
			}
			if got := snapshot(t, b.dir)["f"]; got != "1\n" {
				t.Errorf("the source has %q", got)
			}
			a.check(os.Remove(filepath.Join(b.dir, "d")))
			a.rewrite("/f", "2\n")
		}
	})
}
