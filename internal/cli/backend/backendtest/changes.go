package backendtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

func testEmpty(t *testing.T, s Suite) {
	sb, _ := s.create(t, "empty")
	c := s.changes(t, sb)
	if found := listed(t, c); len(found) > 0 {
		t.Errorf("changes of a new sandbox: %v", found)
	}
	if result, err := c.Apply(t.Context(), backend.ApplyOptions{}); err != nil || len(result.Paths) > 0 {
		t.Errorf("Apply = %+v, %v", result, err)
	}
	if gone, err := c.Discard(t.Context(), nil, false); err != nil || len(gone.Paths) > 0 {
		t.Errorf("Discard = %+v, %v", gone, err)
	}
	_, err := c.Review(t.Context(), []vpath.Path{"/old"}, backend.Names)
	wantKind(t, "Review of a path that has not changed", err, errdefs.NotFound)
	if synced, err := c.Synced(t.Context()); err != nil || len(synced) > 0 {
		t.Errorf("Synced = %v, %v", synced, err)
	}
	if err := c.Lost(); err != nil {
		t.Errorf("Lost = %v", err)
	}
}

func testStreams(t *testing.T, s Suite) {
	sb, _ := s.create(t, "streams")
	live := s.enter(t, sb)
	defer func() {
		if err := live.Leave(); err != nil {
			t.Error(err)
		}
	}()
	exit, stdout, stderr := sh(t, live, "cat; echo error >&2; exit 3", "in\x00put\n")
	if exit.Code != 3 || stdout != "in\x00put\n" || stderr != "error\n" {
		t.Errorf("exit code %d, %q, %q", exit.Code, stdout, stderr)
	}
	running, err := live.Attach(t.Context(), backend.Command{Argv: []string{"/bin/sh", "-c", "echo ready; read line"}})
	if err != nil {
		t.Fatal(err)
	}
	var out signalling
	out.ready = func() { running.Signal(syscall.SIGTERM) }
	if exit, err := running.Wait(&out, &out); err != nil || exit.Code != 128+15 {
		t.Errorf("after SIGTERM: %+v, %v, want the exit code 143", exit, err)
	}
	running, err = live.Attach(t.Context(), backend.Command{Argv: []string{"/no/such/program"}})
	if err == nil {
		exit, err = running.Wait(&bytes.Buffer{}, &bytes.Buffer{})
	}
	if err == nil && exit.Code != 127 {
		t.Errorf("a program that is absent: %+v", exit)
	}
}

// signalling calls ready when something is written.
type signalling struct {
	once  sync.Once
	ready func()
}

func (w *signalling) Write(b []byte) (int, error) {
	w.once.Do(w.ready)
	return len(b), nil
}

// script makes the changes that want tells.
const script = "echo changed >old; echo new >new; rm gone; mkdir dir; echo in >dir/in"

var want = map[vpath.Path]changes.Status{"/old": changes.Modified, "/new": changes.Added, "/gone": changes.Deleted, "/dir/in": changes.Added}

func testListed(t *testing.T, s Suite) {
	sb, _ := s.create(t, "listed")
	s.change(t, sb, script)
	found := listed(t, s.changes(t, sb))
	for path, status := range want {
		if f, is := found[path]; !is || f.Status != status {
			t.Errorf("%s is %v, want %v", path, f.Status, status)
		}
	}
}

func testChanges(t *testing.T, s Suite) {
	sb, dir := s.create(t, "changes")
	s.change(t, sb, script)
	c := s.changes(t, sb)
	result, err := c.Apply(t.Context(), backend.ApplyOptions{DryRun: true})
	if err != nil || result.Count(apply.Applied) < len(want) || read(t, dir, "old") != "old\n" {
		t.Errorf("a dry run = %+v, %v", result, err)
	}
	if result, err = c.Apply(t.Context(), backend.ApplyOptions{Paths: []vpath.Path{"/old"}}); err != nil || result.Count(apply.Applied) != 1 {
		t.Errorf("Apply of one path = %+v, %v", result, err)
	}
	if got := read(t, dir, "old"); got != "changed\n" {
		t.Errorf("old is %q", got)
	}
	gone, err := c.Discard(t.Context(), []vpath.Path{"/new"}, false)
	if err != nil || len(gone.Paths) != 1 || len(gone.Files) != 1 {
		t.Errorf("Discard = %+v, %v", gone, err)
	}
	if result, err = c.Apply(t.Context(), backend.ApplyOptions{Take: backend.TakeNow}); err != nil {
		t.Errorf("Apply of the rest = %+v, %v", result, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "gone")); !os.IsNotExist(err) {
		t.Errorf("gone: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Errorf("new, which was discarded: %v", err)
	}
	if got := read(t, dir, "dir/in"); got != "in\n" {
		t.Errorf("dir/in is %q", got)
	}
	if left := listed(t, s.changes(t, sb)); len(left) > 0 {
		t.Errorf("behind all that: %v", left)
	}
}

func testConflict(t *testing.T, s Suite) {
	sb, dir := s.create(t, "conflict")
	s.change(t, sb, "echo theirs >old")
	if err := os.WriteFile(filepath.Join(dir, "old"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := s.changes(t, sb).Apply(t.Context(), backend.ApplyOptions{})
	wantKind(t, "Apply over a change of the source", err, errdefs.Precondition)
	if result.Count(apply.Conflict) != 1 || read(t, dir, "old") != "mine\n" {
		t.Errorf("a conflict: %+v", result)
	}
}

func testOddNames(t *testing.T, s Suite) {
	sb, dir := s.create(t, "odd")
	live := s.enter(t, sb)
	for i, name := range OddNames {
		var octal strings.Builder // a command line over gRPC has to be UTF-8
		for _, b := range []byte(name) {
			fmt.Fprintf(&octal, `\%03o`, b)
		}
		script := fmt.Sprintf(`echo %d >"./$(printf '%s')"`, i, octal.String())
		if exit, _, stderr := sh(t, live, script, ""); exit.Code != 0 {
			t.Errorf("write %q: exit code %d: %s", name, exit.Code, stderr)
		}
	}
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
	found := listed(t, s.changes(t, sb))
	v, err := s.Backend.View(t.Context(), sb.Ref(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for i, name := range OddNames {
		path := vpath.Root.Child(name)
		if _, is := found[path]; !is {
			t.Errorf("%q is not listed: %v", name, found)
		}
		var content bytes.Buffer
		if err := v.Copy(t.Context(), &content, path); err != nil || content.String() != fmt.Sprintln(i) {
			t.Errorf("%q has %q, %v", name, &content, err)
		}
		result, err := s.changes(t, sb).Apply(t.Context(), backend.ApplyOptions{Paths: []vpath.Path{path}})
		if err != nil || result.Count(apply.Applied) != 1 {
			t.Errorf("Apply of %q = %+v, %v", name, result, err)
		}
		if got := read(t, dir, name); got != fmt.Sprintln(i) {
			t.Errorf("applied %q is %q", name, got)
		}
	}
}

func testShown(t *testing.T, s Suite) {
	sb, dir := s.create(t, "shown")
	s.change(t, sb, "echo one >old; echo new >new")
	c := s.changes(t, sb)
	r, err := c.Review(t.Context(), nil, backend.Contents)
	if err != nil {
		t.Fatal(err)
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
	r.Close()
	s.change(t, sb, "echo two >old")
	result, err := s.changes(t, sb).Apply(t.Context(), backend.ApplyOptions{})
	if err != nil || result.Count(apply.ChangedSinceReview) != 1 || read(t, dir, "old") != "old\n" || read(t, dir, "new") != "new\n" {
		t.Errorf("Apply of what was shown = %+v, %v", result, err)
	}
	if result, err = s.changes(t, sb).Apply(t.Context(), backend.ApplyOptions{Take: backend.TakeLatest}); err != nil || read(t, dir, "old") != "two\n" {
		t.Errorf("Apply of the latest = %+v, %v", result, err)
	}
	_, err = s.changes(t, sb).Apply(t.Context(), backend.ApplyOptions{Reviewed: strings.Repeat("0", len(digest))})
	if err == nil {
		t.Error("Apply of a digest that nobody was shown: no error")
	}
}

func testView(t *testing.T, s Suite) {
	sb, _ := s.create(t, "view")
	s.change(t, sb, "echo changed >old")
	v, err := s.Backend.View(t.Context(), sb.Ref(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	entries, err := v.List(t.Context(), vpath.Root)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Path.Rel()] = true
	}
	if !names["kept"] || !names["old"] || names["secret"] {
		t.Errorf("List = %v", names)
	}
	if e, err := v.Stat(t.Context(), "/old"); err != nil || e.SizeBytes != int64(len("changed\n")) {
		t.Errorf("Stat = %+v, %v", e, err)
	}
	for _, path := range []vpath.Path{"/secret", "/nothing", "/nothing/below"} {
		_, err := v.Stat(t.Context(), path)
		wantHidden(t, "Stat "+string(path), err)
		wantHidden(t, "Copy "+string(path), v.Copy(t.Context(), &bytes.Buffer{}, path))
	}
}

// wantHidden wants the error of what is absent, or looks so.
func wantHidden(t *testing.T, what string, err error) {
	t.Helper()
	if !errdefs.Is(err, errdefs.NotFound) && !errdefs.Is(err, errdefs.Hidden) {
		t.Errorf("%s: %v, want not found", what, err)
	}
}

func testConcurrently(t *testing.T, s Suite) {
	const commands = 8
	sb, dir := s.create(t, "concurrent")
	first := s.enter(t, sb) // so that the others join
	now, err := s.Backend.Sandbox(t.Context(), sb.Ref())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range commands {
		all.Go(func() {
			live, err := s.Backend.Enter(t.Context(), now, backend.EnterOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			sh(t, live, fmt.Sprintf("echo %d >file-%[1]d", i), "")
			if err := live.Leave(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := first.Leave(); err != nil {
		t.Error(err)
	}
	applyAll := func() error {
		c, err := s.Backend.Changes(t.Context(), sb.Ref(), "", nil)
		if err == nil {
			_, err = c.Apply(t.Context(), backend.ApplyOptions{Take: backend.TakeLatest})
		}
		return err
	}
	for range 2 { // what one of them does not apply the other has applied, or is refused
		all.Go(func() { _ = applyAll() })
	}
	all.Wait()
	testenv.Eventually(t, "an apply alone", func() bool { return applyAll() == nil })
	for i := range commands {
		if got := read(t, dir, fmt.Sprintf("file-%d", i)); got != fmt.Sprintln(i) {
			t.Errorf("file-%d is %q", i, got)
		}
	}
}
