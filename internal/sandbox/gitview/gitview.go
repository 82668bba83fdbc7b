// Package gitview is about git where the policy hides files that it tracks: the index that
// a sandbox sees, which leaves them out, and the names of those whose content git's objects
// show nevertheless. It runs nothing of a repository.
//
// Hidden files that git tracks look deleted to a git inside, which would commit their
// deletion, and files that show another content look modified. So the index that the sandbox
// sees has their skip-worktree bits set. These bits are ours: they count for nothing in a
// review, and apply takes them off.
package gitview

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// IndexSubstitutes shows the sandbox the indexes of git repositories with the
// entries skipped that hidden reports.
func IndexSubstitutes(hidden func(vpath.Path) bool) *layer.Substitutes {
	return &layer.Substitutes{
		Wants: func(p vpath.Path) bool { _, ok := gitindex.WorkTreeOf(p); return ok },
		Make: func(p vpath.Path, content []byte) []byte {
			root, _ := gitindex.WorkTreeOf(p)
			x, err := gitindex.Parse(content)
			if err != nil || !skipHidden(x, root, hidden) {
				return nil
			}
			return x.Encode()
		},
		MaxBytes: gitindex.MaxBytes,
	}
}

// skipHidden sets the bits and reports whether that changed any.
func skipHidden(x *gitindex.Index, root vpath.Path, hidden func(vpath.Path) bool) bool {
	return x.Skip(func(e gitindex.Entry) bool {
		p, ok := gitindex.TrackedPath(root, e.Path)
		return e.SkipWorktree || ok && hidden(p)
	})
}
