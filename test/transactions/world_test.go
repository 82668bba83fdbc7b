package transactions_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// box is the model of a sandbox, or of its mount.
type box struct {
	name string
	*delta
	states map[string]*delta // its snapshots, by number
	mount  *box              // nil if this is one
}

// newBox is a sandbox that shows what its sources have.
func newBox(name string) *box {
	return &box{name, newDelta(), map[string]*delta{}, &box{name: name, delta: newDelta(), states: map[string]*delta{}}}
}

// parts are the sandbox and its mount.
func (b *box) parts() []*box { return []*box{b, b.mount} }

// freeze is what a snapshot does with the deltas.
func (b *box) freeze() {
	for _, part := range b.parts() {
		part.delta.freeze()
	}
}

// note makes the present state a snapshot.
func (b *box) note(ref string) {
	for _, part := range b.parts() {
		part.states[ref] = part.clone()
	}
}

// fork is a sandbox that begins with a snapshot of b, or with what b has now.
func (b *box) fork(name, ref string) *box {
	fork := newBox(name)
	for i, part := range b.parts() {
		of := part.delta
		if ref != "" {
			of = part.states[ref]
		}
		fork.parts()[i].delta = of.clone()
	}
	return fork
}

// world is a source with its sandboxes, and what they must be.
type world struct {
	home   *record.Home
	dir    string // the source
	mount  string // the name of the mount that shows the source; "": it is the workspace
	inPath string // its path inside
	data   *world // that of the mount, with the same sandboxes
	src    tree
	boxes  map[string]*box
	done   []*transaction
	made   int // sandboxes
	wrote  int // texts
	did    counts
}

// lines is the text with which files begin.
const lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// Names with bytes that need care: in options, in shells, in lists by lines and in JSON.
const (
	odd     = "-e \\\n\xff"
	alsoOdd = " *\t\xfe\"-"
)

// names are those of files and directories: few, and some more often, so that operations meet.
var names = []string{"a", "a", "a", alsoOdd, "d", "d", odd, "d/a", "d/a", "d/" + alsoOdd, odd + "/a", odd + "/" + alsoOdd}

func (w *world) drawName(rt *rapid.T, label string) string {
	return names[rapid.IntRange(0, len(names)-1).Draw(rt, label)]
}

// dataMount is the name of the mount that each sandbox has, in which everything can be written.
const dataMount = "data"

func newWorld(rt *rapid.T, root, program string, did counts) *world {
	w := &world{did: did, dir: filepath.Join(root, "source"), data: &world{did: did, dir: filepath.Join(root, "data"), mount: dataMount, inPath: "/data"}}
	w.inPath = w.dir
	w.begin(rt)
	w.data.begin(rt)
	var err error
	w.home, err = record.OpenHomeAt(filepath.Join(root, "home"))
	w.must(rt, err)
	w.data.home = w.home
	source, err := w.home.ResolveSource(w.dir)
	w.must(rt, err)
	data, err := w.home.ResolveSource(w.data.dir)
	w.must(rt, err)
	for range 2 {
		name := w.newName()
		rules := []policy.Rule{{Pattern: "**", Permission: policy.Write}}
		mount := record.Mount{
			Source: data.Path, Target: record.HostPath(w.data.inPath), Name: dataMount, Mode: mountspec.CopyOnWrite, Rules: rules, Dev: data.Dev, Ino: data.Ino, Born: data.Born,
		}
		_, err = w.home.Create(record.Record{
			Name: name, Source: source, Workspace: w.dir, Runtime: record.RuntimeBwrap, Net: record.NetNone, Rules: rules, UID: new(uint32(1000)),
			Mounts: []record.Mount{mount, {Source: record.HostPath(program), Target: programPath, Name: programName, Mode: mountspec.ReadOnly}},
		})
		w.must(rt, err)
		w.add(newBox(name))
	}
	return w
}

// begin makes what the source has at first.
func (w *world) begin(rt *rapid.T) {
	w.src, w.boxes = tree{}, map[string]*box{}
	w.must(rt, os.MkdirAll(w.dir, 0o755))
	for _, p := range []string{"a", "d", "d/a", "d/" + alsoOdd} {
		n := file(lines)
		if p == "d" {
			n = dir()
		}
		w.src[p] = n
		w.must(rt, place(w.host(p), n))
	}
	w.identify(rt)
}

// add adds a sandbox.
func (w *world) add(b *box) { w.boxes[b.name], w.data.boxes[b.name] = b, b.mount }

// anyPart draws the source of the workspace, or less often that of the mounts.
func (w *world) anyPart(rt *rapid.T) *world {
	if rapid.IntRange(0, 3).Draw(rt, "in the mount") == 0 {
		return w.data
	}
	return w
}

// in returns an action that takes place in the workspace or in the mount.
func (w *world) in(action func(*world, *rapid.T)) func(*rapid.T) {
	return func(rt *rapid.T) { action(w.anyPart(rt), rt) }
}

func (w *world) newName() string {
	w.made++
	return fmt.Sprintf("s%d", w.made)
}

func (w *world) must(rt *rapid.T, err error) {
	if err != nil {
		rt.Helper()
		rt.Fatal(err)
	}
}

func (w *world) host(p string) string { return filepath.Join(w.dir, p) }

// place makes n at the path of the host, as an editor does: in the place of what is there.
func place(at string, n node) error {
	switch n.kind {
	case 'd':
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		return os.Chmod(at, n.mode)
	case 'l':
		return os.Symlink(n.text, at)
	}
	temp := filepath.Join(filepath.Dir(filepath.Dir(at)), ".new") // never in a snapshot of the source
	if err := os.WriteFile(temp, []byte(n.text), n.mode); err != nil {
		return err
	}
	if err := os.Chmod(temp, n.mode); err != nil {
		return err
	}
	return os.Rename(temp, at)
}

func pathOf(p string) vpath.Path {
	at := vpath.Root
	for name := range strings.SplitSeq(p, "/") {
		at = at.Child(name)
	}
	return at
}

func (w *world) anyBox(rt *rapid.T) (*box, *record.Sandbox) {
	b := w.boxes[rapid.SampledFrom(slices.Sorted(maps.Keys(w.boxes))).Draw(rt, "sandbox")]
	return b, w.open(rt, b)
}

func (w *world) open(rt *rapid.T, b *box) *record.Sandbox {
	sb, err := w.home.Open(b.name)
	w.must(rt, err)
	part, err := sb.InMount(w.mount)
	w.must(rt, err)
	return part
}

// identify notes the identities of the source's entries, after it has changed.
func (w *world) identify(rt *rapid.T) {
	now, err := onDisk(w.dir)
	w.must(rt, err)
	for p, n := range w.src {
		n.identity, n.inode, n.names = now[p].identity, now[p].inode, now[p].names
		w.src[p] = n
	}
}

// inside opens the layers of a sandbox to change them.
func (w *world) inside(rt *rapid.T, sb *record.Sandbox, do func(*layer.Stack)) {
	source, err := sb.Stored.Source.Open()
	w.must(rt, err)
	defer source.Close()
	s, err := changes.OpenLayers(sb, source, layer.Options{})
	w.must(rt, err)
	do(s)
	w.must(rt, s.Close())
}

// check fails unless both sources, each sandbox and each of their snapshots are as the model says.
func (w *world) check(rt *rapid.T) {
	w.checkPart(rt)
	w.data.checkPart(rt)
}

func (w *world) checkPart(rt *rapid.T) {
	now, err := onDisk(w.dir)
	w.must(rt, err)
	w.same(rt, "the source "+w.mount, w.src, now)
	for _, name := range slices.Sorted(maps.Keys(w.boxes)) {
		b := w.boxes[name]
		sb := w.open(rt, b)
		w.same(rt, sb.Ref(), b.view(w.src), w.shown(rt, sb, sb.LayersDir()))
		w.sameChanges(rt, sb.Ref(), b.delta, w.listed(rt, sb, sb.LayersDir()))
		list, err := snapshot.Read(sb)
		w.must(rt, err)
		if len(list.Snapshots) != len(b.states) {
			rt.Fatalf("%s has %d snapshots, want %d", name, len(list.Snapshots), len(b.states))
		}
		for ref, state := range b.states {
			s, err := list.Find(name, ref)
			w.must(rt, err)
			dir, _ := s.LayerDir(sb, w.mount)
			w.same(rt, sb.Ref()+"@"+ref, state.view(w.src), w.shown(rt, sb, dir))
			w.sameChanges(rt, sb.Ref()+"@"+ref, state, w.listed(rt, sb, dir))
		}
	}
}

func (w *world) same(rt *rapid.T, what string, want, got tree) {
	if diff := cmp.Diff(want.describe(), got.describe()); diff != "" {
		rt.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// shown reads what a state of the sandbox shows.
func (w *world) shown(rt *rapid.T, sb *record.Sandbox, dir string) tree {
	state, err := changes.OpenState(sb, dir)
	w.must(rt, err)
	defer state.Close()
	t := tree{}
	pending := []vpath.Path{vpath.Root}
	for len(pending) > 0 {
		at := pending[0]
		pending = pending[1:]
		entries, err := state.Stack.ReadDir(at)
		w.must(rt, err)
		for _, e := range entries {
			p := at.Child(e.Name)
			n := w.read(rt, state.Stack, p)
			t[p.Rel()] = n
			if n.isDir() {
				pending = append(pending, p)
			}
		}
	}
	return t
}

func (w *world) read(rt *rapid.T, s *layer.Stack, p vpath.Path) node {
	info, err := s.Lookup(p)
	w.must(rt, err)
	n := node{mode: os.FileMode(info.Mode & 0o777)}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		n.kind = 'd'
	case unix.S_IFLNK:
		n.kind = 'l'
		n.text, err = s.Readlink(p)
		w.must(rt, err)
	default:
		n.kind = 'f'
		f, _, err := s.Open(p, false)
		w.must(rt, err)
		defer f.Close()
		content := make([]byte, info.Size)
		_, err = f.ReadAt(content, 0)
		w.must(rt, err)
		n.text = string(content)
	}
	return n
}

// sameChanges fails unless a delta has the changes of its model.
func (w *world) sameChanges(rt *rapid.T, of string, d *delta, got map[string]string) {
	want := map[string]string{}
	for p, c := range d.changes(w.src) {
		want[p] = string(c.status)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Fatalf("the changes of %s (-want +got):\n%s", of, diff)
	}
}

// listed returns the letters of the changes that a state of the sandbox has, by path.
func (w *world) listed(rt *rapid.T, sb *record.Sandbox, dir string) map[string]string {
	work, err := changes.OpenState(sb, dir)
	w.must(rt, err)
	defer work.Close()
	list, err := work.Changes(nil, false)
	w.must(rt, err)
	m := map[string]string{}
	for _, c := range list {
		m[c.Path.Rel()] = "-"
		if c.Status != 0 {
			m[c.Path.Rel()] = c.Status.String()
		}
	}
	return m
}
