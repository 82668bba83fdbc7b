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
	g := gathering{p, silent, map[vpath.Path]vpath.Path{}, map[vpath.Path]bool{}}
	var list []changes.Change
	for _, c := range slices.Backward(all) {
		if c.Status == 0 {
			continue
		}
		if p.isChosen(c.Path) || g.belongs(&c) {
			list = append(list, c)
			g.note(&c)
		} else if g.isMissing(&c) {
			return errdefs.New(errdefs.Precondition, "apply %s: nothing applied: %s needs the directory %s, whose change is not chosen: choose it, too",
				ref, changes.Quote(g.ways[c.Path]), changes.Quote(c.Path))
		} else if !silent[c.Path] {
			notWhole(g.stays, c.Path)
		}
	}
	slices.Reverse(list)
	p.Changes = list
	return p.describe(w)
}

// gathering collects changes, children before their directories.
type gathering struct {
	*Picked
	silent map[vpath.Path]bool
	ways   map[vpath.Path]vpath.Path // directories that are needed, and for what
	stays  map[vpath.Path]bool       // directories with something below that is not chosen
}

// belongs reports whether the chosen changes cannot be applied without c, or leave nothing of it.
func (g *gathering) belongs(c *changes.Change) bool {
	switch {
	case c.Taken != "" && g.whole[c.Taken]: // goes with its directory
		return true
	case c.Status == changes.Deleted:
		return g.silent[c.Path] && !g.stays[c.Path]
	}
	return g.ways[c.Path] != "" && c.Status == changes.Added && record.IsDir(c.Info.Mode)
}

// isMissing reports whether c makes a directory of something else, which a chosen change needs.
func (g *gathering) isMissing(c *changes.Change) bool {
	return g.ways[c.Path] != "" && c.Status == changes.Retyped && record.IsDir(c.Info.Mode)
}

// note notes what a collected change is about.
func (g *gathering) note(c *changes.Change) {
	if g.Parts[c.Path] != nil {
		notWhole(g.stays, c.Path)
	}
	if dir := c.Path.Dir(); c.Status != changes.Deleted && g.ways[dir] == "" {
		g.ways[dir] = c.Path
	}
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
