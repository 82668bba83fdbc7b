package snapshot_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// tree is what a state shows: contents by path.
type tree map[string]string

// world is a home with sandboxes of one source, and what each of their states must show.
type world struct {
	home    *record.Home
	dir     string // the source
	source  tree
	boxes   map[string]tree            // by name
	states  map[string]map[string]tree // snapshots by the name of the sandbox and the number
	made    int
	writing int
}

func newWorld(t *rapid.T, root string) *world {
	w := &world{dir: filepath.Join(root, "source"), source: tree{}, boxes: map[string]tree{}, states: map[string]map[string]tree{}}
	must(t, os.MkdirAll(w.dir, 0o755))
	for _, name := range paths[:3] {
		w.source[name] = "source of " + name
		must(t, os.MkdirAll(filepath.Dir(w.host(name)), 0o755))
		must(t, os.WriteFile(w.host(name), []byte(w.source[name]), 0o644))
	}
	var err error
	w.home, err = record.OpenHomeAt(filepath.Join(root, "home"))
	must(t, err)
	source, err := w.home.ResolveSource(w.dir)
	must(t, err)
	_, err = w.home.Create(record.Record{
		Name: "b0", Source: source, Workspace: w.dir, Runtime: record.RuntimeBwrap, Net: record.NetNone,
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Write}},
	})
	must(t, err)
	w.boxes["b0"], w.states["b0"] = maps.Clone(w.source), map[string]tree{}
	return w
}

var paths = []string{"a", "d/b", "d/\xff\n", "d/new", ".wh.x", strings.Repeat("l", 254)}

func (w *world) host(p string) string { return filepath.Join(w.dir, p) }

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) any(t *rapid.T) *record.Sandbox {
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(w.boxes))).Draw(t, "sandbox")
	sb, err := w.home.Open(name)
	must(t, err)
	return sb
}

// open opens the layers of a sandbox to change them.
func (w *world) open(t *rapid.T, sb *record.Sandbox) (*layer.Stack, func()) {
	source, err := sb.Stored.Source.Open()
	must(t, err)
	s, err := changes.OpenLayers(sb, source, layer.Options{})
	must(t, err)
	return s, func() {
		must(t, s.Close())
		source.Close()
	}
}

// edit writes or removes a file.
func (w *world) edit(t *rapid.T) {
	sb := w.any(t)
	s, done := w.open(t, sb)
	defer done()
	name := rapid.SampledFrom(paths).Draw(t, "path")
	p := vpath.Root.Child(name)
	if dir, base, ok := strings.Cut(name, "/"); ok {
		p = vpath.Root.Child(dir).Child(base)
	}
	shown := w.boxes[sb.Name()]
	if _, there := shown[name]; there && rapid.Bool().Draw(t, "remove") {
		_, err := s.Unlink(p, false)
		must(t, err)
		delete(shown, name)
		return
	}
	w.writing++
	content := fmt.Sprintf("%s wrote %d", sb.Name(), w.writing)
	f, _, err := s.Open(p, true)
	if err != nil {
		f, _, err = s.Create(p, 0o644)
	}
	must(t, err)
	defer f.Close()
	_, err = s.SetAttr(p, layer.SetAttr{Size: new(int64(0))})
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	shown[name] = content
}

// take makes a snapshot, of an open stack or of a closed one.
func (w *world) take(t *rapid.T) {
	sb := w.any(t)
	freeze := snapshot.FreezeStopped(sb)
	if rapid.Bool().Draw(t, "open") {
		s, done := w.open(t, sb)
		defer done()
		freeze = func() (map[string]string, error) {
			name, err := s.Freeze()
			return map[string]string{"": name}, err
		}
	}
	s, err := snapshot.Take(sb, snapshot.Snapshot{}, freeze)
	must(t, err)
	w.states[sb.Name()][s.Ref()] = maps.Clone(w.boxes[sb.Name()])
}

func (w *world) anyState(t *rapid.T, sb *record.Sandbox) (string, bool) {
	refs := slices.Sorted(maps.Keys(w.states[sb.Name()]))
	if len(refs) == 0 {
		return "", false
	}
	return rapid.SampledFrom(refs).Draw(t, "snapshot"), true
}

func (w *world) restore(t *rapid.T) {
	sb := w.any(t)
	ref, ok := w.anyState(t, sb)
	if !ok {
		return
	}
	r, err := snapshot.Restore(sb, ref)
	must(t, err)
	if r.Kept.Number != 0 {
		w.states[sb.Name()][r.Kept.Ref()] = w.boxes[sb.Name()]
	}
	w.boxes[sb.Name()] = maps.Clone(w.states[sb.Name()][ref])
}

func (w *world) fork(t *rapid.T) {
	if len(w.boxes) > 3 {
		return
	}
	sb := w.any(t)
	o := snapshot.ForkOptions{Freeze: snapshot.FreezeStopped(sb)}
	shown := w.boxes[sb.Name()]
	if ref, ok := w.anyState(t, sb); ok && rapid.Bool().Draw(t, "of a snapshot") {
		o.Snapshot, shown = ref, w.states[sb.Name()][ref]
	}
	w.made++
	o.Names = []string{fmt.Sprintf("b%d", w.made)}
	_, err := snapshot.Fork(sb, o)
	must(t, err)
	w.boxes[o.Names[0]], w.states[o.Names[0]] = maps.Clone(shown), map[string]tree{}
}

// remove removes a sandbox, but not the last one.
func (w *world) remove(t *rapid.T) {
	if len(w.boxes) == 1 {
		return
	}
	sb := w.any(t)
	must(t, w.home.Remove(sb.Name()))
	delete(w.boxes, sb.Name())
	delete(w.states, sb.Name())
}

func (w *world) forget(t *rapid.T) {
	sb := w.any(t)
	if ref, ok := w.anyState(t, sb); ok {
		must(t, snapshot.Remove(sb, ref))
		delete(w.states[sb.Name()], ref)
	}
}

// discard drops the changes at one path, or all.
func (w *world) discard(t *rapid.T) {
	sb := w.any(t)
	s, done := w.open(t, sb)
	defer done()
	if rapid.Bool().Draw(t, "all") {
		must(t, s.Reset())
		w.boxes[sb.Name()] = maps.Clone(w.source)
		return
	}
	name := rapid.SampledFrom(paths).Draw(t, "path")
	p := vpath.Root
	for part := range strings.SplitSeq(name, "/") {
		p = p.Child(part)
	}
	must(t, s.Drop(p))
	shown := w.boxes[sb.Name()]
	if content, ok := w.source[name]; ok {
		shown[name] = content
	} else {
		delete(shown, name)
	}
}

// sweep removes layers, and leaves none that nothing refers to.
func (w *world) sweep(t *rapid.T) {
	must(t, snapshot.Sweep(w.home))
	used := map[string]bool{}
	for name := range w.boxes {
		sb, err := w.home.Open(name)
		must(t, err)
		l, err := snapshot.Read(sb)
		must(t, err)
		heads := []string{sb.LayersDir()}
		if o := l.Origin; o != nil && o.Layer != "" {
			used[o.Layer] = true
			heads = append(heads, filepath.Join(w.home.LayerStore(), o.Layer))
		}
		for _, s := range l.Snapshots {
			if dir, _ := s.LayerDir(sb, ""); dir != "" {
				used[filepath.Base(dir)] = true
				heads = append(heads, dir)
			}
		}
		for _, head := range heads {
			below, err := layer.Chain(head, w.home.LayerStore())
			must(t, err)
			for _, b := range below {
				used[b] = true
			}
		}
	}
	entries, err := os.ReadDir(w.home.LayerStore())
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(entries) != len(used) {
		t.Fatalf("%d layers are left, and %d are used", len(entries), len(used))
	}
}

// check fails if a state shows anything but what it must.
func (w *world) check(t *rapid.T) {
	for name, want := range w.boxes {
		sb, err := w.home.Open(name)
		must(t, err)
		compare(t, name, sb, sb.LayersDir(), want)
		l, err := snapshot.Read(sb)
		must(t, err)
		if len(l.Snapshots) != len(w.states[name]) {
			t.Fatalf("%s has %d snapshots, want %d", name, len(l.Snapshots), len(w.states[name]))
		}
		for ref, want := range w.states[name] {
			s, err := l.Find(name, ref)
			must(t, err)
			dir, _ := s.LayerDir(sb, "")
			compare(t, name+"@"+ref, sb, dir, want)
		}
		if tree, err := snapshot.TreeOf(sb); err != nil || len(tree.Nodes) != len(l.Snapshots) {
			t.Fatalf("the tree of %s has %d snapshots of %d, %v", name, len(tree.Nodes), len(l.Snapshots), err)
		}
	}
}

func compare(t *rapid.T, what string, sb *record.Sandbox, dir string, want tree) {
	state, err := changes.OpenState(sb, dir)
	must(t, err)
	defer state.Close()
	got := tree{}
	for _, dir := range []vpath.Path{vpath.Root, vpath.Root.Child("d")} {
		entries, err := state.Stack.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if e.Mode == unix.S_IFDIR {
				continue
			}
			f, i, err := state.Stack.Open(dir.Child(e.Name), false)
			must(t, err)
			content := make([]byte, i.Size)
			_, err = f.ReadAt(content, 0)
			must(t, err)
			f.Close()
			got[dir.Child(e.Name).Rel()] = string(content)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s shows (+), want (-):\n%s", what, diff)
	}
}

// TestStatesStay edits, snapshots, restores, forks, discards and removes at random: each state
// shows what it showed when it was made, and no layer is left that nothing refers to.
func TestStatesStay(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		w := newWorld(t, filepath.Join(base, fmt.Sprint(n)))
		t.Repeat(map[string]func(*rapid.T){
			"": w.check, "edit": w.edit, "edit2": w.edit, "take": w.take, "restore": w.restore, "fork": w.fork,
			"remove": w.remove, "forget": w.forget, "discard": w.discard, "sweep": w.sweep,
		})
	})
}
