package fusefs

import (
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// TestNodesAreSmall: a supervisor with a hundred thousand nodes must fit into 40 MB.
func TestNodesAreSmall(t *testing.T) {
	if got := unsafe.Sizeof(node{}); got > 80 {
		t.Errorf("a node takes %d bytes, want at most 80", got)
	}
	if got := unsafe.Sizeof(dirent{}); got > 24 {
		t.Errorf("a directory entry takes %d bytes, want at most 24", got)
	}
}

// TestTableAgainstAModel makes, moves, links, unlinks and forgets nodes at
// random and compares with a map of paths.
func TestTableAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		m := &tableModel{tab: &tab, root: tab.init(0), at: map[vpath.Path]*node{}}
		m.dirs = []*node{m.root}
		t.Repeat(map[string]func(*rapid.T){
			"add":    m.add,
			"link":   m.link,
			"move":   m.move,
			"drop":   m.drop,
			"forget": m.forget,
			"":       m.check,
		})
	})
}

// tableModel maps each path to its node.
type tableModel struct {
	tab  *table
	root *node
	dirs []*node
	at   map[vpath.Path]*node
	made int
}

// place draws a directory that still has a path, and a name in it.
func (m *tableModel) place(t *rapid.T) (*node, string, vpath.Path) {
	dir := rapid.SampledFrom(m.dirs).Draw(t, "dir")
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
	p, ok := m.tab.path(dir)
	if !ok {
		t.Skip("the directory is gone")
	}
	return dir, name, p.Child(name)
}

func (m *tableModel) add(t *rapid.T) {
	dir, name, p := m.place(t)
	if m.at[p] != nil {
		t.Skip("taken")
	}
	mode := uint32(unix.S_IFREG)
	if rapid.Bool().Draw(t, "directory") && len(p) < 12 {
		mode = unix.S_IFDIR
	}
	m.tab.mu.Lock()
	n := m.tab.addLocked(mode)
	m.tab.placeLocked(n, dir, name)
	n.known = 1
	m.tab.mu.Unlock()
	m.at[p] = n
	if n.isDir() {
		m.dirs = append(m.dirs, n)
	}
}

func (m *tableModel) file(t *rapid.T) (vpath.Path, *node) {
	_, _, p := m.place(t)
	n := m.at[p]
	if n == nil || n.isDir() {
		t.Skip("no file")
	}
	return p, n
}

func (m *tableModel) link(t *rapid.T) {
	_, n := m.file(t)
	dir, name, p := m.place(t)
	if m.at[p] != nil {
		t.Skip("taken")
	}
	m.tab.mu.Lock()
	m.tab.linkLocked(n, dir, name)
	n.known++
	m.tab.mu.Unlock()
	m.at[p] = n
}

func (m *tableModel) drop(t *rapid.T) {
	p, n := m.file(t)
	parent := m.root
	if !p.Dir().IsRoot() {
		parent = m.at[p.Dir()]
	}
	m.tab.mu.Lock()
	last := m.tab.dropNameLocked(n, parent, p.Base())
	m.tab.mu.Unlock()
	delete(m.at, p)
	for _, other := range m.at {
		if other == n && last {
			t.Fatalf("%s was the last name of a node that has more", p)
		}
	}
}

func (m *tableModel) move(t *rapid.T) {
	oldDir, oldName, from := m.place(t)
	newDir, newName, to := m.place(t)
	n := m.at[from]
	if n == nil || m.at[to] != nil || to.Within(from) {
		t.Skip("cannot move")
	}
	m.tab.mu.Lock()
	m.tab.dropNameLocked(n, oldDir, oldName)
	m.tab.settleLocked(n, newDir, newName)
	m.tab.mu.Unlock()
	moved := map[vpath.Path]*node{}
	for p, at := range m.at {
		if p.Within(from) {
			p = p.Rebase(from, to)
		}
		moved[p] = at
	}
	m.at = moved
}

func (m *tableModel) forget(t *rapid.T) {
	p, n := m.file(t)
	for _, other := range m.at {
		if other == n {
			m.made++
		}
	}
	m.tab.mu.Lock()
	n.known = 0
	m.tab.collectLocked(n)
	dead, _ := m.tab.takeDeadLocked()
	m.tab.mu.Unlock()
	if len(dead) != 1 || dead[0] != n {
		t.Fatalf("forgetting %s buried %v", p, dead)
	}
	for p, other := range m.at {
		if other == n {
			delete(m.at, p)
		}
	}
}

func (m *tableModel) check(t *rapid.T) {
	for p, n := range m.at {
		parent := m.root
		if !p.Dir().IsRoot() {
			parent = m.at[p.Dir()]
		}
		if got := m.tab.child(parent, p.Base()); got != n {
			t.Fatalf("%s leads to %v, want %v", p, got, n)
		}
		if m.tab.get(n.id) != n {
			t.Fatalf("the number of %s leads elsewhere", p)
		}
		if got, ok := m.tab.path(n); !ok || m.at[got] != n {
			t.Fatalf("the node at %s says it is at %s, %v", p, got, ok)
		}
	}
}

func TestNumbersAreNeverUsedTwice(t *testing.T) {
	var tab table
	root := tab.init(0)
	seen := map[uint64]bool{}
	for i := range 1000 {
		tab.mu.Lock()
		n := tab.addLocked(unix.S_IFREG)
		tab.placeLocked(n, root, fmt.Sprint(i))
		if seen[n.id] {
			t.Fatalf("number %d again", n.id)
		}
		seen[n.id] = true
		tab.collectLocked(n)
		tab.mu.Unlock()
	}
	if len(tab.slots) > 3 {
		t.Errorf("%d slots for one node at a time", len(tab.slots))
	}
}

func TestOffsetsStayWithNames(t *testing.T) {
	list := func(names ...string) []layer.DirEntry {
		var all []layer.DirEntry
		for _, n := range names {
			all = append(all, layer.DirEntry{Name: n})
		}
		return all
	}
	offsets := func(d *dir) string {
		s := ""
		for _, e := range d.entries {
			s += fmt.Sprintf("%s%d ", e.name, e.offset)
		}
		return s
	}
	var d dir
	for _, step := range []struct {
		names []layer.DirEntry
		want  string
	}{
		{list("c", "a", "b"), "a3 b4 c5 "},
		{list("c", "a"), "a3 c5 "},
		{list("d", "a", "b", "c"), "a3 c5 b6 d7 "},
		{list(), ""},
		{list("a"), "a8 "},
	} {
		d.renumber(step.names)
		if got := offsets(&d); got != step.want {
			t.Errorf("offsets %q, want %q", got, step.want)
		}
	}
}
