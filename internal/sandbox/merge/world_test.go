package merge_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a home with sandboxes of one source.
type world struct {
	t      tester
	home   *record.Home
	source string
}

// newWorld makes a home, a source with files, and the sandbox "into".
func newWorld(t tester, root string, files map[string]string) *world {
	t.Helper()
	w := &world{t: t, source: filepath.Join(root, "source")}
	must(t, os.MkdirAll(w.source, 0o755))
	for name, content := range files {
		path := filepath.Join(w.source, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	var err error
	w.home, err = record.OpenHomeAt(filepath.Join(root, "home"))
	must(t, err)
	w.create("into")
	return w
}

func (w *world) create(name string, rules ...policy.Rule) *record.Sandbox {
	w.t.Helper()
	source, err := w.home.ResolveSource(w.source)
	must(w.t, err)
	rules = append([]policy.Rule{{Pattern: "**", Permission: policy.Write}}, rules...)
	sb, err := w.home.Create(record.Record{
		Name: name, Source: source, Workspace: w.source, Runtime: record.RuntimeBwrap, Net: record.NetNone, Rules: rules,
	})
	must(w.t, err)
	return sb
}

func (w *world) box(name string) *record.Sandbox {
	w.t.Helper()
	sb, err := w.home.Open(name)
	must(w.t, err)
	return sb
}

// fork makes a fork of into.
func (w *world) fork(name string, rules ...policy.Rule) {
	w.t.Helper()
	sb := w.box("into")
	_, err := snapshot.Fork(sb, snapshot.ForkOptions{
		Names: []string{name}, Freeze: snapshot.FreezeStopped(sb),
		Change: func(r *record.Record) { r.SetRules(append(r.Rules, rules...), "test") },
	})
	must(w.t, err)
}

// in changes the layers of a sandbox.
func (w *world) in(name string, do func(*layer.Stack)) {
	w.t.Helper()
	sb := w.box(name)
	source, err := sb.Stored.Source.Open()
	must(w.t, err)
	s, err := changes.OpenLayers(sb, source, layer.Options{})
	must(w.t, err)
	do(s)
	must(w.t, errors.Join(s.Close(), source.Close()))
}

func at(name string) vpath.Path {
	p := vpath.Root
	for part := range strings.SplitSeq(name, "/") {
		p = p.Child(part)
	}
	return p
}

// write writes a file as an editor does, with its directories.
func (w *world) write(box, name, content string) {
	w.t.Helper()
	w.in(box, func(s *layer.Stack) {
		p := at(name)
		for dir := range p.Ancestors() {
			if _, err := s.Lookup(dir); err != nil {
				_, err := s.Mkdir(dir, 0o755)
				must(w.t, err)
			}
		}
		f, _, err := s.Open(p, true)
		if err != nil {
			f, _, err = s.Create(p, 0o644)
		}
		must(w.t, err)
		_, err = s.SetAttr(p, layer.SetAttr{Size: new(int64(0))})
		must(w.t, err)
		_, err = f.WriteAt([]byte(content), 0)
		must(w.t, err)
		f.Close()
	})
}

func (w *world) remove(box, name string) {
	w.t.Helper()
	w.in(box, func(s *layer.Stack) {
		i, err := s.Lookup(at(name))
		must(w.t, err)
		if i.IsDir() {
			must(w.t, s.Rmdir(at(name), nil))
			return
		}
		_, err = s.Unlink(at(name), false)
		must(w.t, err)
	})
}

func (w *world) chmod(box, name string, mode uint32) {
	w.t.Helper()
	w.in(box, func(s *layer.Stack) {
		_, err := s.SetAttr(at(name), layer.SetAttr{Mode: &mode})
		must(w.t, err)
	})
}

func (w *world) symlink(box, target, name string) {
	w.t.Helper()
	w.in(box, func(s *layer.Stack) {
		_, err := s.Symlink(target, at(name))
		must(w.t, err)
	})
}

// shows returns what a state shows: a content, "-> target", "dir" or "" for nothing.
func (w *world) shows(box, name string) string {
	w.t.Helper()
	sb := w.box(box)
	state, err := changes.OpenState(sb, sb.LayersDir())
	must(w.t, err)
	defer state.Close()
	return show(w.t, state.Stack, at(name))
}

func show(t tester, s *layer.Stack, p vpath.Path) string {
	t.Helper()
	i, err := s.Lookup(p)
	if err != nil {
		return ""
	}
	switch i.Mode & record.TypeBits {
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		target, err := s.Readlink(p)
		must(t, err)
		return "-> " + target
	}
	f, i, err := s.Open(p, false)
	must(t, err)
	defer f.Close()
	content := make([]byte, i.Size)
	_, err = f.ReadAt(content, 0)
	must(t, err)
	return string(content)
}

// merge merges a fork into another sandbox.
func (w *world) merge(from, into string, resolve conflict.Resolution, paths ...string) merge.Result {
	w.t.Helper()
	r, err := w.tryMerge(merge.Options{Resolve: resolve}, from, into, paths...)
	must(w.t, err)
	return r
}

func (w *world) tryMerge(o merge.Options, from, into string, paths ...string) (merge.Result, error) {
	w.t.Helper()
	o.Into, o.From = w.box(into), w.box(from)
	o.Freeze = snapshot.FreezeStopped(o.From)
	for _, p := range paths {
		o.Paths = append(o.Paths, at(p))
	}
	lock, err := o.Into.TryLock(record.PurposeMerge)
	must(w.t, err)
	defer lock.Release()
	return merge.Merge(context.Background(), o)
}

type recordOf = record.Record

// rmdirSeeing removes a directory of which the sandbox sees only some entries.
func (w *world) rmdirSeeing(box, name string, seen ...string) {
	w.t.Helper()
	w.in(box, func(s *layer.Stack) {
		must(w.t, s.Rmdir(at(name), func(entry string) bool { return slices.Contains(seen, entry) }))
	})
}

func newTest(t *testing.T, files map[string]string) *world {
	t.Helper()
	return newWorld(t, t.TempDir(), files)
}
