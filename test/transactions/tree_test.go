package transactions_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// node is an entry of a tree.
type node struct {
	kind rune // 'f', 'd' or 'l'
	mode os.FileMode
	text string // the content, or the target

	identity string // of the source's entry: what stat(2) says of it
	inode    string // the same without the time of a rename
	names    uint64 // of the file
	byHash   bool   // of a base: its content was recorded, so that another entry may be the same

	group int // of a delta's entry: the file of which it is one of several names; 0: it has one
}

func file(text string) node { return node{kind: 'f', mode: 0o644, text: text} }
func link(to string) node   { return node{kind: 'l', mode: 0o777, text: to} }
func dir() node             { return node{kind: 'd', mode: 0o755} }

func (n node) isDir() bool  { return n.kind == 'd' }
func (n node) isFile() bool { return n.kind == 'f' }

// isText reports whether the node is a file that is merged and applied line by line.
func (n node) isText() bool { return n.isFile() && !strings.Contains(n.text, "\x00") }

// tree has entries by their paths, relative to the root, which is "" and is not in it.
type tree map[string]node

// parent is the directory of p, "" for the root.
func parent(p string) string {
	if d := path.Dir(p); d != "." {
		return d
	}
	return ""
}

// ancestors are the directories above p, from the top down, without the root.
func ancestors(p string) []string {
	var list []string
	for d := parent(p); d != ""; d = parent(d) {
		list = append(list, d)
	}
	slices.Reverse(list)
	return list
}

func isBelow(p, dir string) bool { return dir == "" || strings.HasPrefix(p, dir+"/") }

// parentsFirst returns the paths of a map, directories before what is in them.
func parentsFirst[V any](m map[string]V) []string {
	list := slices.Collect(maps.Keys(m))
	slices.SortFunc(list, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	return list
}

// childrenFirst returns them the other way round.
func childrenFirst[V any](m map[string]V) []string {
	list := parentsFirst(m)
	slices.Reverse(list)
	return list
}

func (t tree) isDir(p string) bool { return p == "" || t[p].isDir() }

// isEmpty reports whether t has nothing below p.
func (t tree) isEmpty(p string) bool {
	for q := range t {
		if isBelow(q, p) {
			return false
		}
	}
	return true
}

// links are the names of the file at p, which has its identity of the disk.
func (t tree) links(p string) []string {
	var list []string
	for q, n := range t {
		if q == p || n.isFile() && n.inode == t[p].inode {
			list = append(list, q)
		}
	}
	return list
}

// removeAll removes p and what is below.
func (t tree) removeAll(p string) {
	maps.DeleteFunc(t, func(q string, _ node) bool { return q == p || isBelow(q, p) })
}

// describe returns t as lines, to compare it and to show it.
func (t tree) describe() map[string]string {
	m := map[string]string{}
	for p, n := range t {
		mode := n.mode
		if n.kind == 'l' {
			mode = 0o777
		}
		m[p] = fmt.Sprintf("%c %o %q", n.kind, mode, n.text)
	}
	return m
}

// onDisk reads the tree below root.
func onDisk(root string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == root {
			return err
		}
		p, _ := filepath.Rel(root, at)
		info, err := d.Info()
		if err != nil {
			return err
		}
		n := node{mode: info.Mode().Perm()}
		switch {
		case d.IsDir():
			n.kind = 'd'
		case info.Mode().IsRegular():
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			n.kind, n.text = 'f', string(content)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(at)
			if err != nil {
				return err
			}
			n = link(to)
		default:
			return fmt.Errorf("%s: a %v", p, info.Mode())
		}
		st := info.Sys().(*syscall.Stat_t)
		n.inode = fmt.Sprint(st.Ino, st.Size, st.Mtim)
		n.names = st.Nlink
		n.identity = fmt.Sprint(n.inode, st.Mode, st.Ctim)
		t[p] = n
		return nil
	})
	return t, err
}
