package cli

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// deletedTree is a directory below which an apply deleted files and did nothing else.
type deletedTree struct {
	dir    vpath.Path // that contains all of them
	files  int
	listed bool
}

// fewDeleted is how many deleted files are listed one by one.
const fewDeleted = 10

// deletedTrees finds the directories for which the list of an apply has one line, by the paths that
// this line stands for. Such a path was deleted, and there is nothing else to say about it: a path
// with a risk mark or a reason, or one that moved, has its own line.
func deletedTrees(paths []apply.PathResult) map[vpath.Path]*deletedTree {
	mixed := map[vpath.Path]bool{vpath.Root: true}
	for i := range paths {
		if !isPlainlyDeleted(&paths[i]) {
			for dir := range paths[i].Path.Ancestors() {
				mixed[dir] = true
			}
		}
	}
	tops, of := map[vpath.Path]*deletedTree{}, map[vpath.Path]*deletedTree{}
	for i := range paths {
		p := paths[i].Path
		top := topBelow(p, mixed)
		if !isPlainlyDeleted(&paths[i]) || top == p {
			continue
		}
		tree := tops[top]
		if tree == nil {
			tree = &deletedTree{dir: p.Dir()}
			tops[top] = tree
		}
		for !p.Within(tree.dir) {
			tree.dir = tree.dir.Dir()
		}
		tree.files++
		of[p] = tree
	}
	for p, tree := range of {
		if tree.files <= fewDeleted {
			delete(of, p)
		}
	}
	return of
}

func isPlainlyDeleted(p *apply.PathResult) bool {
	return p.Outcome == apply.Applied && p.Status == changes.Deleted && p.Mark == nil && p.Reason == "" &&
		p.RenamedFrom == "" && p.RenamedTo == "" && p.Group == ""
}

// topBelow returns the highest directory above p, or p, that is not in a set which has the root.
func topBelow(p vpath.Path, set map[vpath.Path]bool) vpath.Path {
	for !set[p.Dir()] {
		p = p.Dir()
	}
	return p
}

// tree adds the line of a tree, once.
func (l *appliedLines) tree(t *deletedTree) {
	if !t.listed {
		t.listed = true
		l.list = append(l.list, fmt.Sprintf("%s\t%s\t%s/\tdeleted", apply.Applied, plural(t.files, "file"), l.shown(t.dir)))
	}
}
