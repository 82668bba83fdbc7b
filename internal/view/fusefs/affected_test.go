package fusefs

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// lockModel is a table of nodes, of which some have lost their names, under two random sets of
// locks.
type lockModel struct {
	tableModel
	fs    *FS
	files uint64
}

// TestAffectedAgainstAllNodes moves, links, removes and replaces nodes at random, and compares the
// nodes that a change of locks affects with those that depend on a path that it covers.
func TestAffectedAgainstAllNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := &FS{}
		m := &lockModel{fs: fs}
		m.tableModel = tableModel{tab: &fs.nodes, root: fs.nodes.init(0), at: map[vpath.Path]*node{}}
		m.dirs = []*node{m.root}
		t.Repeat(map[string]func(*rapid.T){
			"add":     m.add,
			"own":     m.own,
			"link":    m.link,
			"number":  m.number,
			"move":    m.move,
			"remove":  m.remove,
			"replace": m.replace,
			"forget":  m.forget,
			"":        m.compare,
		})
	})
}

// own adds a directory that is an own entry.
func (m *lockModel) own(t *rapid.T) {
	dir, name, p := m.place(t)
	p = p.Dir().Child(vpath.OwnName(name))
	if p.Dir().IsOwn() || m.at[p] != nil {
		t.Skip("taken")
	}
	m.tab.mu.Lock()
	n := m.tab.addLocked(unix.S_IFDIR)
	m.tab.placeLocked(n, dir, vpath.OwnName(name))
	n.known = 1
	m.tab.mu.Unlock()
	m.at[p] = n
	m.dirs = append(m.dirs, n)
}

// number registers a file as one with several names.
func (m *lockModel) number(t *rapid.T) {
	_, n := m.file(t)
	m.files++
	m.tab.mu.Lock()
	m.fs.registerLocked(n, fileKey{Ino: m.files})
	m.tab.mu.Unlock()
}

// remove takes a name from a file as unlink(2) does.
func (m *lockModel) remove(t *rapid.T) {
	p, n := m.file(t)
	m.fs.removed(&target{parent: m.parentOf(p), path: p, name: p.Base()}, n, nil)
	delete(m.at, p)
}

// replace takes a name from a node, which may be a directory with others below it, as another file
// in the source does.
func (m *lockModel) replace(t *rapid.T) {
	_, _, p := m.place(t)
	n := m.at[p]
	if n == nil {
		t.Skip("nothing there")
	}
	m.tab.mu.Lock()
	m.fs.abandonLocked(n, m.parentOf(p), p.Base())
	m.tab.mu.Unlock()
	maps.DeleteFunc(m.at, func(q vpath.Path, _ *node) bool { return q.Within(p) })
}

func (m *lockModel) parentOf(p vpath.Path) *node {
	if p.Dir().IsRoot() {
		return m.root
	}
	return m.at[p.Dir()]
}

func (m *lockModel) compare(t *rapid.T) {
	base := compiled(t, policy.Rule{Pattern: "**", Permission: policy.Write}, policy.Rule{Pattern: "**/b", Permission: policy.Read})
	draw := func(name string) *rules {
		var locks []policy.Lock
		for _, path := range rapid.SliceOfN(rapid.SampledFrom([]vpath.Path{"/", "/a", "/b", "/a/b", "/c/a", "/d/d/a", "/absent"}), 0, 2).Draw(t, name) {
			locks = append(locks, policy.Lock{Path: path, Reason: "locked"})
		}
		r := &rules{Policy: base.WithLocks(locks), strict: strictNames{}}
		for i := range m.files {
			if rapid.Bool().Draw(t, "strict") {
				r.strict[fileKey{Ino: i + 1}] = rapid.SampledFrom([]vpath.Path{"/a/x", "/c/a", "/x"}).Draw(t, "the strictest name")
			}
		}
		return r
	}
	old, now := draw("old"), draw("new")
	changed, _ := policy.ChangedLocks(old.Policy, now.Policy)
	got := map[*node]int{}
	for _, n := range m.fs.affected(old, now) {
		got[n]++
	}
	for _, n := range m.tab.all() {
		paths := slices.Concat(m.tab.decidingLocked(n, old), m.tab.decidingLocked(n, now))
		want := 0
		if slices.ContainsFunc(paths, changed.Covers) {
			want = 1
		}
		if got[n] != want {
			t.Fatalf("the node of %v is affected %d times, want %d", paths, got[n], want)
		}
		delete(got, n)
	}
	if len(got) > 0 {
		t.Fatalf("%d affected nodes are not in the table", len(got))
	}
	if other := (&rules{Policy: compiled(t, policy.Rule{Pattern: "**", Permission: policy.Read}), strict: strictNames{}}); len(m.fs.affected(old, other)) != len(m.tab.all()) {
		t.Fatal("other rules do not affect all nodes")
	}
	if unknown := (&rules{Policy: now.Policy}); len(m.fs.affected(old, unknown)) != len(m.tab.all()) {
		t.Fatal("a search for links that failed does not affect all nodes")
	}
}

// TestTheStrictestNameAffectsItsFile: the lock ends on a name that the kernel does not know.
func TestTheStrictestNameAffectsItsFile(t *testing.T) {
	fs := &FS{}
	root, key := fs.nodes.init(0), fileKey{Ino: 1}
	n := fs.nodes.addLocked(unix.S_IFREG)
	fs.nodes.placeLocked(n, root, "x")
	fs.registerLocked(n, key)
	now := &rules{Policy: compiled(t, policy.Rule{Pattern: "**", Permission: policy.Write}), strict: strictNames{}}
	old := &rules{Policy: now.WithLocks([]policy.Lock{{Path: "/a", Reason: "locked"}}), strict: strictNames{key: "/a/x"}}
	for _, change := range [][2]*rules{{old, now}, {now, old}} {
		if got := fs.affected(change[0], change[1]); !slices.Equal(got, []*node{n}) {
			t.Errorf("%d nodes are affected, want the one of /x", len(got))
		}
	}
}

func compiled(t rapid.TB, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
