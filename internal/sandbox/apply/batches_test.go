package apply_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
)

// batched returns a bench with changes for several batches whose files are placed concurrently.
func batched(t *testing.T) (b *bench, want map[string]string) {
	t.Helper()
	apply.SetBatchFiles(t, 100)
	old := tree{}
	for i := range 120 {
		old[fmt.Sprintf("old/f%03d", i)] = "old\n"
	}
	b = newBench(t, old)
	b.agent(func(a *agent) {
		a.mkdir("/new")
		for i := range 120 {
			a.write(vpath.Path(fmt.Sprintf("/old/f%03d", i)), fmt.Sprintf("changed %d\n", i))
			a.write(vpath.Path(fmt.Sprintf("/new/f%03d", i)), fmt.Sprintf("new %d\n", i))
		}
		a.write("/new/first", "both\n")
		a.link("/new/first", "/new/second")
	})
	want = map[string]string{"new/first": "both\n", "new/second": "both\n"}
	for i := range 120 {
		want[fmt.Sprintf("old/f%03d", i)] = fmt.Sprintf("changed %d\n", i)
		want[fmt.Sprintf("new/f%03d", i)] = fmt.Sprintf("new %d\n", i)
	}
	return b, want
}

// contents returns the content of each file of the source.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		got[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestApplyInSeveralBatches(t *testing.T) {
	b, want := batched(t)
	r := b.apply()
	for _, p := range r.Paths {
		if p.Outcome != apply.Applied {
			t.Errorf("%+v", p)
		}
	}
	if diff := cmp.Diff(want, contents(t, b.dir)); diff != "" {
		t.Errorf("the source (-want +got):\n%s", diff)
	}
	first, second := statOf(t, filepath.Join(b.dir, "new/first")), statOf(t, filepath.Join(b.dir, "new/second"))
	if first.Ino != second.Ino {
		t.Error("the two names are two files")
	}
	if left := b.changes(); len(left) > 0 {
		t.Errorf("the delta still has %q", left)
	}
}

// A batch that was staged ahead, and is not placed, leaves no file, and none open.
func TestAnApplyThatIsCanceledBetweenBatchesRestoresTheSource(t *testing.T) {
	b, want := batched(t)
	before := snapshot(t, b.dir)
	open := openFiles(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	placed := 0
	_, err := apply.Changes(ctx, b.box, apply.Options{Progress: func(tried, _ int) {
		if placed = tried; tried == 50 {
			cancel()
		}
	}})
	if !errdefs.Is(err, errdefs.Canceled) || placed >= 200 {
		t.Fatalf("%v after %d paths, want it canceled in the first batch", err, placed)
	}
	if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
		t.Errorf("the source (-before +after):\n%s", diff)
	}
	if now := openFiles(t); now != open {
		t.Errorf("%d open files, %d before", now, open)
	}
	b.apply()
	if diff := cmp.Diff(want, contents(t, b.dir)); diff != "" {
		t.Errorf("applied later (-want +got):\n%s", diff)
	}
}

// A file of many that somebody changes meanwhile stays as it is; the others are placed.
func TestOneOfManyFilesChangesWhileTheyArePlaced(t *testing.T) {
	b, want := batched(t)
	busy, changed := "old/f119", false
	r, err := apply.Changes(t.Context(), b.box, apply.Options{Progress: func(int, int) {
		if !changed {
			changed = true // after the plan was made, and before the last batch
			write(t, filepath.Join(b.dir, busy), "by another\n")
		}
	}})
	want[busy] = "by another\n"
	if p := resultAt(r, vpath.Path("/"+busy)); !errdefs.Is(err, errdefs.Precondition) || p.Outcome != apply.Conflict {
		t.Errorf("%v, %+v, want a conflict", err, p)
	}
	if diff := cmp.Diff(want, contents(t, b.dir)); diff != "" {
		t.Errorf("the source (-want +got):\n%s", diff)
	}
}

// openFiles returns the number of descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
