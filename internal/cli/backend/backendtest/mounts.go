package backendtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
)

// withMounts makes a sandbox of an empty directory with the mounts data, in which commands may
// write, and look, in which they may not. It returns their common source.
func (s Suite) withMounts(t *testing.T, name string) (sb backend.Sandbox, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(s.Root, "source-")
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sb, err = s.Backend.Create(t.Context(), backend.NewSandbox{
		Name: name, Source: s.source(t), Rules: writable, Net: "none",
		Mounts: []string{dir + ":/mnt/data:cow", dir + ",dst=/mnt/ro,name=look"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Backend.Remove(context.WithoutCancel(t.Context()), sb.Ref(), backend.RemoveForced); err != nil {
			t.Error(err)
		}
	})
	return sb, dir
}

func (s Suite) changesIn(t *testing.T, sb backend.Sandbox, mount string) backend.Changes {
	t.Helper()
	c, err := s.Backend.Changes(t.Context(), sb.Ref(), mount, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mountScript makes the changes in the mount data that want tells of the workspace, and another.
const mountScript = "cat /mnt/ro/kept && ! touch /mnt/ro/new && cd /mnt/data && echo changed >old && echo new >new && rm gone && echo x >extra"

func testMounts(t *testing.T, s Suite) {
	sb, _ := s.withMounts(t, "mounts")
	s.change(t, sb, mountScript)
	if found := listed(t, s.changes(t, sb)); len(found) > 0 {
		t.Errorf("changes of the workspace: %v", found)
	}
	c := s.changesIn(t, sb, "data")
	found := listed(t, c)
	for path, status := range want {
		if f, is := found[path]; path != "/dir/in" && (!is || f.Status != status) {
			t.Errorf("%s is %v, want %v", path, f.Status, status)
		}
	}
	if got := c.Ref(); got != "mounts --in data" {
		t.Errorf("Ref = %q", got)
	}
	list, err := s.Backend.Pending(t.Context(), sb.Ref())
	if err != nil || len(list) != 1 || list[0].Mount != "data" || len(list[0].Files) != 4 {
		t.Errorf("Pending = %+v, %v", list, err)
	}
	_, err = s.Backend.Remove(t.Context(), sb.Ref(), backend.RemoveEmpty)
	wantKind(t, "Remove of a sandbox with changes in a mount", err, errdefs.Precondition)
	if left, err := s.Backend.RemoveUnused(t.Context(), sb); err != nil || !left.HasChanges {
		t.Errorf("RemoveUnused of a sandbox with changes in a mount = %+v, %v", left, err)
	}
}

func testMountApply(t *testing.T, s Suite) {
	sb, dir := s.withMounts(t, "mountapply")
	s.change(t, sb, mountScript)
	c := s.changesIn(t, sb, "data")
	paths := []vpath.Path{"/old", "/gone"}
	for _, dryRun := range []bool{true, false} {
		result, err := c.Apply(t.Context(), backend.ApplyOptions{Paths: paths, DryRun: dryRun})
		if err != nil || result.Count(apply.Applied) != 2 || result.Codebase != "" {
			t.Errorf("Apply, as a dry run %t = %+v, %v", dryRun, result, err)
		}
		if got := read(t, dir, "old"); (got == "old\n") != dryRun {
			t.Errorf("after Apply, as a dry run %t, old is %q", dryRun, got)
		}
	}
	if gone, err := c.Discard(t.Context(), []vpath.Path{"/new"}, false); err != nil || len(gone.Paths) != 1 || len(gone.Files) != 1 {
		t.Errorf("Discard = %+v, %v", gone, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "extra"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := c.Apply(t.Context(), backend.ApplyOptions{})
	wantKind(t, "Apply over a change of the source", err, errdefs.Precondition)
	if result.Count(apply.Conflict) != 1 || read(t, dir, "extra") != "mine\n" {
		t.Errorf("a conflict: %+v", result)
	}
	_, err = c.Discard(t.Context(), nil, false)
	if left := listed(t, s.changesIn(t, sb, "data")); err != nil || len(left) > 0 {
		t.Errorf("after all that: %v, %v", left, err)
	}
}

// show shows all changes in a mount, or for "" in the workspace.
func (s Suite) show(t *testing.T, sb backend.Sandbox, mount string) {
	t.Helper()
	r, err := s.changesIn(t, sb, mount).Review(t.Context(), nil, backend.Contents)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Mount() != mount {
		t.Errorf("the review of %q is of %q", mount, r.Mount())
	}
	for i := range r.Files() {
		if _, err := r.Content(&r.Files()[i]); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := r.Remember()
	if err == nil {
		err = r.Note(digest)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func testMountShown(t *testing.T, s Suite) {
	sb, dir := s.withMounts(t, "mountshown")
	s.change(t, sb, "echo 1 >old; echo one >/mnt/data/old; echo new >/mnt/data/new")
	s.show(t, sb, "data")
	s.show(t, sb, "") // each is remembered
	s.change(t, sb, "echo two >/mnt/data/old")
	result, err := s.changesIn(t, sb, "data").Apply(t.Context(), backend.ApplyOptions{})
	if err != nil || result.Count(apply.ChangedSinceReview) != 1 || read(t, dir, "old") != "old\n" || read(t, dir, "new") != "new\n" {
		t.Errorf("Apply of what was shown = %+v, %v", result, err)
	}
	if result, err = s.changes(t, sb).Apply(t.Context(), backend.ApplyOptions{}); err != nil || result.Count(apply.Applied) != 1 {
		t.Errorf("Apply of what was shown of the workspace = %+v, %v", result, err)
	}
	if result, err = s.changesIn(t, sb, "data").Apply(t.Context(), backend.ApplyOptions{Take: backend.TakeLatest}); err != nil || read(t, dir, "old") != "two\n" {
		t.Errorf("Apply of the latest = %+v, %v", result, err)
	}
}

func testMountView(t *testing.T, s Suite) {
	sb, _ := s.withMounts(t, "mountview")
	s.change(t, sb, "echo changed >/mnt/data/old")
	for mount, want := range map[string]string{"data": "changed\n", "look": "old\n"} {
		v, err := s.Backend.View(t.Context(), sb.Ref(), mount, nil)
		if err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		if err := v.Copy(t.Context(), &content, "/old"); err != nil || content.String() != want {
			t.Errorf("old in %s is %q, %v", mount, &content, err)
		}
		if entries, err := v.List(t.Context(), vpath.Root); err != nil || len(entries) != len(files) {
			t.Errorf("List of %s = %v, %v", mount, entries, err)
		}
		v.Close()
	}
	for mount, want := range map[string]errdefs.Kind{"look": errdefs.Unsupported, "nothing": errdefs.NotFound} {
		c, err := s.Backend.Changes(t.Context(), sb.Ref(), mount, nil)
		if err == nil {
			_, err = c.Review(t.Context(), nil, backend.Names)
		}
		if s.IsServer && want == errdefs.Unsupported { // an answer has no word for it
			want = errdefs.Precondition
		}
		wantKind(t, "the changes in "+mount, err, want)
	}
}

func testScratch(t *testing.T, s Suite) {
	sb, err := s.Backend.Create(t.Context(), backend.NewSandbox{Name: "scratch", Source: s.source(t), Rules: writable, Net: "none", Scratch: []string{"nm", "out"}})
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Backend.Sandbox(t.Context(), sb.Ref())
	if err != nil || len(now.Record.Scratch) != 2 || now.Record.Scratch[1].String() != "out" {
		t.Errorf("Sandbox = %v, %v", now.Record.Scratch, err)
	}
	if _, err := s.Backend.Remove(t.Context(), sb.Ref(), backend.RemoveEmpty); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]errdefs.Kind{"../nm": errdefs.Invalid, "secret": errdefs.Precondition} {
		rules := writable
		if path == "secret" {
			rules.Rules = rules.Rules[1:]
		}
		_, err := s.Backend.Create(t.Context(), backend.NewSandbox{Name: "scratch", Source: s.source(t), Rules: rules, Net: "none", Scratch: []string{path}})
		wantKind(t, "the scratch directory "+path, err, want)
	}
}
