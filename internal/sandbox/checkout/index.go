package checkout

import (
	"encoding/hex"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/history"
)

// modeDir is the mode of a directory of a sparse index.
const modeDir = 0o40000

// index is the index of the source.
type index struct {
	*gitindex.Index
	was     *history.Entity
	before  *unix.Stat_t
	entries map[string][]gitindex.Entry
	dirs    map[string]bool // that have entries below them
	sparse  bool            // some entries are not checked out
}

// readIndex reads the index. Errors: Precondition for one that cannot be used.
func readIndex(tree *changes.SourceTree) (*index, error) {
	x := &index{entries: map[string][]gitindex.Entry{}, dirs: map[string]bool{}}
	err := tree.At(history.Index, func(e changes.Entry) (err error) {
		if x.before, err = e.Stat(); err != nil || x.before == nil {
			return err
		}
		f, err := e.OpenFile()
		if err != nil {
			return err
		}
		defer f.Close()
		if x.Index, err = gitindex.Read(f); err != nil {
			return err
		}
		x.was, err = history.EntityOf(e, x.before)
		return err
	})
	if err != nil {
		return nil, errdefs.New(errdefs.Precondition, ".git/index: %w", err)
	}
	if x.before == nil {
		return nil, errdefs.New(errdefs.Precondition, "the repository has no index: git reset makes one")
	}
	sum := x.Sum()
	x.was.Index = hex.EncodeToString(sum[:])
	isSparse := false
	x.Entries(func(e gitindex.Entry) {
		x.entries[e.Path] = append(x.entries[e.Path], e)
		x.sparse = x.sparse || e.SkipWorktree
		isSparse = isSparse || e.Mode == modeDir
		for dir := path.Dir(e.Path); dir != "." && !x.dirs[dir]; dir = path.Dir(dir) {
			x.dirs[dir] = true
		}
	})
	if isSparse {
		return nil, errdefs.New(errdefs.Precondition, "the index of the repository is sparse: git sparse-checkout reapply --no-sparse-index makes it whole")
	}
	return x, nil
}

// refuses says why the index does not have the old file, or "".
func (x *index) refuses(f *file) string {
	entries := x.entries[f.Path]
	if f.isNew() {
		return x.refusesNew(f.Path, len(entries) > 0)
	}
	if len(entries) != 1 || entries[0].Stage != 0 {
		return "the index does not have it as the branch: commit it, or unstage it by git restore --staged"
	}
	e := entries[0]
	mode, err := parseOctal(f.Old.Mode)
	switch {
	case err != nil || e.Mode != mode || hex.EncodeToString([]byte(e.Object)) != f.Old.ID:
		return "its change is staged: commit it, or unstage it by git restore --staged"
	case e.SkipWorktree:
		return "it is not checked out, because the work tree is sparse (git sparse-checkout)"
	case e.AssumeValid:
		return "git does not look at it: git update-index --no-assume-unchanged changes that"
	}
	return ""
}

func (x *index) refusesNew(name string, has bool) string {
	if has {
		return "it is staged: commit it, or unstage it by git restore --staged"
	}
	if x.dirs[name] {
		return "it takes the place of a directory: only a new branch (--to-branch, to_branch) can have that"
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if len(x.entries[dir]) > 0 {
			return "its directory takes the place of a file: only a new branch (--to-branch, to_branch) can have that"
		}
	}
	if x.sparse {
		return "it is new, and the work tree is sparse (git sparse-checkout), so that it may not belong there"
	}
	return ""
}

func parseOctal(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	return uint32(n), err
}
