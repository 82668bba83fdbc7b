package review

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// OfStates is the review of files, which say how the state later of a source differs from the
// state earlier. Changes of both states must have been read. Marks are those of the tree as it
// would be if the later state were applied. sumOld and sumNew return the SHA-256 of what a
// regular file had and has, "" if that is not known. Nothing of the review can be applied, so it
// has no digest.
func OfStates(name string, earlier, later *changes.Work, files []FileDiff, content func(*FileDiff) (Content, error), sumOld, sumNew func(*FileDiff) string) (*Review, error) {
	m, err := marks(later)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(files, func(a, b FileDiff) int { return first(!a.Own, !b.Own) })
	inSource := files
	if i := slices.IndexFunc(files, func(f FileDiff) bool { return f.Own }); i >= 0 {
		inSource = files[:i]
	}
	for i := range files {
		files[i].Mark = m.ofDiff(&files[i])
	}
	removing := markRemovals(later, inSource, isChangedIn(later))
	groups := group(later, earlier, inSource, m)
	findRenames(inSource, sumNew, sumOld)
	sortFiles(files, removing)
	return &Review{name: name, id: later.Sandbox.ID(), mount: later.Sandbox.Mount(), files: files, groups: groups, content: content}, nil
}

// isChangedIn returns a function that reports whether the state w changed a path of the source.
func isChangedIn(w *changes.Work) func(vpath.Path) bool {
	changed := make(map[vpath.Path]bool, len(w.Delta))
	for i := range w.Delta {
		changed[w.Delta[i].Path] = true
	}
	return func(p vpath.Path) bool { return changed[p] }
}

// stateRefs are the files of refs of a git directory that a state changed, by the path below dir.
func stateRefs(w *changes.Work, dir vpath.Path) map[string]*FileDiff {
	files := map[string]*FileDiff{}
	for i := range w.Delta {
		d, rel, ok := GitDirOf(w.Delta[i].Path)
		if !ok || d != dir {
			continue
		}
		f := &FileDiff{Path: w.Delta[i].Path, Change: changes.Change{Change: w.Delta[i]}}
		f.Old, f.New = sides(w, &f.Change)
		files[rel] = f
	}
	return files
}
