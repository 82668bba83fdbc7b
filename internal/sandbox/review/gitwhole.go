package review

import (
	"cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// The changes of a git directory belong together: a branch without its commits, or
// an index without its branch, is a damaged repository. An apply takes all of
// them or none. It places objects first and refs last, so that one that fails or is
// killed midway leaves nothing worse than objects that no ref leads to.

// CheckWhole refuses paths that select a part of what changed in a git directory.
// Errors: Precondition.
func CheckWhole(w *changes.Work, list []changes.Change, paths []vpath.Path, name string) error {
	if len(paths) == 0 {
		return nil
	}
	meant := changes.Selection(paths)
	parts := partsOfGit(list, meant)
	if len(parts) == 0 {
		return nil
	}
	taken := changes.MarkTaken(w.Delta)
	for i := range w.Delta {
		c := changes.Change{Change: w.Delta[i], Taken: taken[i]}
		dir, _, _ := GitDirOf(c.Path)
		if parts[dir] == "" || meant(c.Path) {
			continue
		}
		if err := w.Classify(&c); err != nil && !errdefs.Is(err, errdefs.NotFound) {
			return err
		}
		if c.IsListed() && (!isDirOnly(&c) || c.Status == changes.Modified) {
			return errdefs.New(errdefs.Precondition,
				"apply %s: nothing applied: %s is a part of %s, whose changes are applied as a whole: name %[3]s, or discard what you do not want of it",
				name, changes.Quote(parts[dir]), changes.Quote(dir))
		}
	}
	return nil
}

// partsOfGit are the git directories that are not meant themselves, with the first
// path below that is.
func partsOfGit(changes []changes.Change, meant func(vpath.Path) bool) map[vpath.Path]vpath.Path {
	parts := map[vpath.Path]vpath.Path{}
	for _, c := range changes {
		dir, _, ok := GitDirOf(c.Path)
		if ok && meant(c.Path) && !meant(dir) && c.IsListed() {
			parts[dir] = min(c.Path, cmp.Or(parts[dir], c.Path))
		}
	}
	return parts
}
