package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// compareApplied makes the listed changes in a copy of the source and compares it with the
// view.
func (m *model) compareApplied(t *rapid.T) {
	target := m.plain + "-applied"
	defer os.RemoveAll(target)
	copyTree(m.b.t, m.b.source, target)
	changes, err := m.b.Changes()
	must(m.b.t, err)
	if untouched, err := m.b.IsUntouched(); err != nil || untouched && len(changes) > 0 {
		t.Fatalf("untouched = %t, %v, with %d changes", untouched, err, len(changes))
	}
	for _, c := range slices.Backward(changes) {
		if c.Base == nil {
			t.Fatalf("%q has no base", c.Path)
		}
		if c.Kind == Deleted || c.TypeChanged {
			must(m.b.t, os.RemoveAll(filepath.Join(target, string(c.Path))))
		}
	}
	for _, c := range changes {
		if c.Kind == Deleted {
			continue
		}
		ok, err := m.b.SourceMatches(c.Path, c.Base)
		if err != nil || !ok {
			t.Fatalf("source at %q does not match its base: %v", c.Path, err)
		}
		m.applyOne(t, target, c)
	}
	want := plainTree(m.b.t, m.plain)
	if diff := cmp.Diff(withoutLinks(want), withoutLinks(plainTree(m.b.t, target))); diff != "" {
		t.Fatalf("applying the changes (+) does not give the view (-):\n%s", diff)
	}
}

func (m *model) applyOne(t *rapid.T, target string, c Change) {
	host := filepath.Join(target, string(c.Path))
	mode := c.Info.Mode & modeMask
	switch c.Info.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := os.Mkdir(host, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	case unix.S_IFLNK:
		link, err := m.b.Readlink(c.Path)
		must(m.b.t, err)
		_ = os.Remove(host)
		must(m.b.t, os.Symlink(link, host))
		return
	case unix.S_IFIFO:
		_ = os.Remove(host)
		must(m.b.t, unix.Mkfifo(host, 0o600))
	default:
		f, err := m.b.OpenDelta(c.Path)
		must(m.b.t, err)
		defer f.Close()
		_ = os.Remove(host)
		content, err := safefs.ReadRange(int(f.Fd()), 0, c.Info.Size)
		must(m.b.t, err)
		must(m.b.t, os.WriteFile(host, content, 0o600))
	}
	must(m.b.t, unix.Fchmodat(unix.AT_FDCWD, host, mode, 0))
}

func (m *model) check(t *rapid.T) {
	sameLinks(t, m.b.Stack)
	got, inos := m.viewTree(t)
	want := plainTree(m.b.t, m.plain)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the view (+) is not what a plain directory (-) would be:\n%s", diff)
	}
	for ino, shown := range inos {
		if was, ok := m.inos[ino]; ok && was != shown {
			t.Fatalf("inode number %#x became %#x", was, shown)
		}
	}
	m.inos = inos
}

// viewTree describes the view, and which plain inode shows which number.
func (m *model) viewTree(t *rapid.T) ([]node, map[uint64]uint64) {
	var nodes []node
	inos, back := map[uint64]uint64{}, map[uint64]uint64{}
	var walk func(p vpath.Path, i Info)
	walk = func(p vpath.Path, i Info) {
		nodes = append(nodes, m.viewNode(t, p, i))
		if st, err := os.Lstat(m.host(p)); err == nil && p != vpath.Root {
			ino := st.Sys().(*syscall.Stat_t).Ino
			if other, ok := back[i.Ino]; ok && other != ino {
				t.Fatalf("%q shows the number of another file", p)
			}
			inos[ino], back[i.Ino] = i.Ino, ino
		}
		if !i.IsDir() {
			return
		}
		entries, err := m.b.ReadDir(p)
		must(m.b.t, err)
		slices.SortFunc(entries, func(a, b DirEntry) int { return strings.Compare(a.Name, b.Name) })
		for _, e := range entries {
			child, err := m.b.LookupIn(p, e.Name)
			must(m.b.t, err)
			if e.Mode != child.Mode&unix.S_IFMT || e.Ino != child.Ino {
				t.Fatalf("%q is listed as %o %d, and is %o %d", e.Name, e.Mode, e.Ino, child.Mode, child.Ino)
			}
			walk(p.Child(e.Name), child)
		}
	}
	i, err := m.b.Lookup(vpath.Root)
	must(m.b.t, err)
	walk(vpath.Root, i)
	return nodes, inos
}

func (m *model) viewNode(t *rapid.T, p vpath.Path, i Info) node {
	n := node{Path: string(p), Mode: modeString(i.Mode)}
	switch i.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.Content, _ = m.content(t, p)
		n.Links = int(i.Nlink)
	case unix.S_IFLNK:
		target, err := m.b.Readlink(p)
		must(m.b.t, err)
		n.Content = target
	}
	return n
}

func modeString(mode uint32) string {
	kind := map[uint32]string{unix.S_IFREG: "-", unix.S_IFDIR: "d", unix.S_IFLNK: "l", unix.S_IFIFO: "p"}[mode&unix.S_IFMT]
	if kind == "l" {
		return kind
	}
	return fmt.Sprintf("%s%04o", kind, mode&0o7777)
}

// plainTree describes a directory of the host.
func plainTree(t testing.TB, root string) []node {
	t.Helper()
	var nodes []node
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := i.Sys().(*syscall.Stat_t)
		n := node{Path: "/" + strings.TrimPrefix(strings.TrimPrefix(path, root), "/"), Mode: modeString(st.Mode)}
		switch {
		case i.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			n.Content, n.Links = string(content), int(st.Nlink)
		case i.Mode()&fs.ModeSymlink != 0:
			n.Content, err = os.Readlink(path)
		}
		nodes = append(nodes, n)
		return err
	}))
	return nodes
}

func withoutLinks(nodes []node) []node {
	for i := range nodes {
		nodes[i].Links = 0
	}
	return nodes
}

// copyTree copies a file or a directory as the model knows them.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	i, err := os.Lstat(from)
	must(t, err)
	switch {
	case i.IsDir():
		must(t, os.Mkdir(to, 0o700))
		entries, err := os.ReadDir(from)
		must(t, err)
		for _, e := range entries {
			copyTree(t, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	case i.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		must(t, err)
		must(t, os.Symlink(target, to))
		return
	case i.Mode()&fs.ModeNamedPipe != 0:
		must(t, unix.Mkfifo(to, 0o600))
	default:
		content, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(to, content, 0o600))
	}
	must(t, unix.Fchmodat(unix.AT_FDCWD, to, i.Sys().(*syscall.Stat_t).Mode&0o7777, 0))
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// discard drops everything, one by one or at once.
func (m *model) discard(t *rapid.T) {
	if rapid.Bool().Draw(t, "all") {
		must(m.b.t, m.b.Reset())
	} else {
		changes, err := m.b.Changes()
		must(m.b.t, err)
		paths := []vpath.Path{}
		for _, c := range changes {
			paths = append(paths, c.Path)
		}
		must(m.b.t, m.b.Drop(paths...))
	}
	must(m.b.t, os.RemoveAll(m.plain))
	copyTree(m.b.t, m.b.source, m.plain)
	m.inos = nil
	if left := m.b.changes(); len(left) > 0 {
		t.Fatalf("changes after dropping all: %q", left)
	}
	for _, l := range m.b.layers[:m.b.bottom()] {
		must(m.b.t, walkNames(l.root, func(_ int, p vpath.Path, c storedChild) error {
			if c.kind != nameenc.KindEntry || c.mode != unix.S_IFDIR { // one whose times were set is no change
				t.Fatalf("%q is left in the delta after dropping all", p)
			}
			return nil
		}))
	}
}

// dropSome discards the changes of some files.
func (m *model) dropSome(t *rapid.T) {
	changes, err := m.b.Changes()
	must(m.b.t, err)
	changes = slices.DeleteFunc(changes, func(c Change) bool {
		return c.Info.IsDir() || c.Base == nil || c.TypeChanged || c.Kind == Created
	})
	if len(changes) == 0 {
		return
	}
	var paths []vpath.Path
	for _, c := range changes {
		if rapid.Bool().Draw(t, "drop") && m.restore(c.Path) {
			paths = append(paths, c.Path)
		}
	}
	must(m.b.t, m.b.Drop(paths...))
	m.inos = nil
}

// restore copies the source's p to the plain directory, with missing parents. It returns
// false if a parent is not a directory there.
func (m *model) restore(p vpath.Path) bool {
	for a := range p.Ancestors() {
		if i, err := os.Lstat(m.host(a)); err == nil && !i.IsDir() {
			return false
		}
	}
	for a := range p.Ancestors() {
		i, err := os.Stat(m.b.src(string(a)))
		if err != nil {
			return false
		}
		if os.Mkdir(m.host(a), 0o700) == nil {
			must(m.b.t, os.Chmod(m.host(a), i.Mode().Perm()))
		}
	}
	must(m.b.t, os.RemoveAll(m.host(p)))
	copyTree(m.b.t, m.b.src(string(p)), m.host(p))
	return true
}
