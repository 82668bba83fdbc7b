package hunk

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// collect collects the chosen changes, with the directories that they are made in, what a chosen
// deletion removes, and directories of which all is removed. Errors: Precondition.
func (p *Picked) collect(w *changes.Work, all []changes.Change, silent map[vpath.Path]bool, ref string) error {
	ways := map[vpath.Path]vpath.Path{} // directories that are needed, and for what
	stays := map[vpath.Path]bool{}      // directories with something below that is not chosen
	var list []changes.Change
	for _, c := range slices.Backward(all) {
		chosen := p.isChosen(c.Path)
		switch {
		case chosen:
		case c.Status == 0:
			continue
		case c.Taken != "" && p.whole[c.Taken]: // goes with its directory
		case c.Status == changes.Deleted && silent[c.Path] && !stays[c.Path]:
		case ways[c.Path] != "" && c.Status == changes.Added && record.IsDir(c.Info.Mode):
		case ways[c.Path] != "" && c.Status == changes.Retyped && record.IsDir(c.Info.Mode):
			return errdefs.New(errdefs.Precondition, "apply %s: nothing applied: %s needs the directory %s, whose change is not chosen: choose it, too",
				ref, changes.Quote(ways[c.Path]), changes.Quote(c.Path))
		default:
			if !silent[c.Path] {
				notWhole(stays, c.Path)
			}
			continue
		}
		if p.Parts[c.Path] != nil {
			notWhole(stays, c.Path)
		}
		if dir := c.Path.Dir(); c.Status != changes.Deleted && ways[dir] == "" {
			ways[dir] = c.Path
		}
		list = append(list, c)
	}
	slices.Reverse(list)
	p.Changes = list
	return p.describe(w)
}

func notWhole(stays map[vpath.Path]bool, at vpath.Path) {
	for dir := range at.Ancestors() {
		stays[dir] = true
	}
}

// isChosen reports whether something of the change at the path is chosen.
func (p *Picked) isChosen(at vpath.Path) bool {
	return p.whole[at] || p.Parts[at] != nil || p.Stale[at] != ""
}

// describe adds to the entries the changes that no id names.
func (p *Picked) describe(w *changes.Work) error {
	for i := range p.Changes {
		c := &p.Changes[i]
		if _, is := p.Entries[c.Path]; is || p.Stale[c.Path] != "" || !c.IsListed() {
			continue
		}
		e, err := manifest.EntryNow(w, c)
		switch {
		case err == nil:
			p.Entries[c.Path] = e
		case record.UnlessDenied(err) != nil:
			return err
		} // else it is left out, as one that was not shown
	}
	return nil
}

// checkGit refuses a part of what changed in a git directory. Errors: Precondition.
func (p *Picked) checkGit(all []changes.Change, ref string) error {
	some := map[vpath.Path]bool{}
	for _, c := range p.Changes {
		if dir, _, ok := review.GitDirOf(c.Path); ok && p.isChosen(c.Path) {
			some[dir] = true
		}
	}
	if len(some) == 0 {
		return nil
	}
	in := map[vpath.Path]bool{}
	for _, c := range p.Changes {
		in[c.Path] = true
	}
	silent := review.Implied(all)
	for i := range all {
		c := &all[i]
		if dir, _, _ := review.GitDirOf(c.Path); some[dir] && c.IsListed() && !silent[c.Path] && !in[c.Path] {
			return errdefs.New(errdefs.Precondition, "apply %s: nothing applied: the changes of %s are applied as a whole, and %s is not chosen",
				ref, changes.Quote(dir), changes.Quote(c.Path))
		}
	}
	return nil
}
