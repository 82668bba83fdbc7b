package branch

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
)

// decide decides what the commit has of each change.
func (c *commit) decide(ctx context.Context) error {
	head, err := c.repo.Head(ctx)
	if err != nil {
		return err
	}
	files := c.planned()
	for _, f := range files {
		f.head = head[f.at]
	}
	if err := c.leaveOut(ctx, c.belowNothing(files, head)); err != nil {
		return err
	}
	if err := c.hash(ctx); err != nil {
		return err
	}
	c.changed = map[string]gitcommit.Entry{}
	for _, f := range c.planned() {
		if err := c.decideOne(ctx, f); err != nil {
			return err
		}
		if f.isPlanned() {
			c.changed[f.at] = f.committed
		}
	}
	c.checkPlaces(head)
	return nil
}

// planned are the changes with a file or link on a side that are not left out.
func (c *commit) planned() []*file {
	return slices.DeleteFunc(slices.Clone(c.files), func(f *file) bool { return !f.isPlanned() || f.oursMode == "" && f.baseMode == "" })
}

// belowNothing refuses the files below a submodule of HEAD, and returns the others without those
// below a link that the sandbox has replaced: git answers no question about what is beyond a link.
func (c *commit) belowNothing(files []*file, head map[string]gitcommit.Entry) []*file {
	links := map[string]bool{}
	for _, f := range files {
		if f.baseMode == gitcommit.Link {
			links[f.at] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(files), func(f *file) bool {
		beyond := false
		for dir := path.Dir(f.at); dir != "."; dir = path.Dir(dir) {
			if head[dir].Mode == gitcommit.Submodule {
				f.stop(apply.Conflict, fmt.Sprintf("HEAD has a submodule at %s", vpath.Escape(dir)))
			}
			beyond = beyond || links[dir]
		}
		return beyond || !f.isPlanned()
	})
}

// leaveOut leaves out new files that git ignores, and files that git would give to a filter.
func (c *commit) leaveOut(ctx context.Context, files []*file) error {
	unknown := slices.DeleteFunc(slices.Clone(files), func(f *file) bool { return f.head != (gitcommit.Entry{}) })
	ignored, err := c.repo.Ignored(ctx, names(unknown))
	if err != nil {
		return err
	}
	filters, err := c.repo.Filtered(ctx, names(files))
	if err != nil {
		return err
	}
	for _, f := range files {
		switch filter := filters[f.at]; {
		case ignored[f.at]:
			f.stop(apply.LeftOut, "git ignores it")
		case filter != "" && f.oursMode != "" && f.oursMode != gitcommit.Link:
			f.stop(apply.LeftOut, fmt.Sprintf("git's filter %s is not run; apply it to the source and commit it there", vpath.Escape(filter)))
		}
	}
	return nil
}

// hash sets the ids of the contents.
func (c *commit) hash(ctx context.Context) error {
	var put []string
	var ids []*string
	for _, f := range c.planned() {
		if f.oursMode != "" {
			put, ids = append(put, f.ours), append(ids, &f.oursID)
		}
		if f.baseMode != "" {
			put, ids = append(put, f.base), append(ids, &f.baseID)
		}
	}
	found, err := c.repo.Hash(ctx, put)
	for i, id := range found {
		*ids[i] = id
	}
	return err
}

// decideOne decides about a file: it takes the change over from the base to HEAD.
func (c *commit) decideOne(ctx context.Context, f *file) error {
	none := gitcommit.Entry{}
	ours, base := gitcommit.Entry{Mode: f.oursMode, ID: f.oursID}, gitcommit.Entry{Mode: f.baseMode, ID: f.baseID}
	switch {
	case f.head == ours:
		f.stop(apply.Present, "HEAD has it already")
	case f.head == base:
		f.committed = ours
	case ours == base:
		f.stop(apply.Present, "git records no such change of the mode")
	case f.head == none:
		f.stop(apply.Conflict, "the source's version is not committed: commit it first")
	case base == none:
		f.stop(apply.Conflict, "HEAD has a file there that the source does not have")
	case ours == none:
		f.stop(apply.Conflict, "HEAD has another version than the one that the sandbox deleted")
	case c.shown != nil:
		f.stop(apply.Conflict, "HEAD has another version than the one that the sandbox changed, and an attested commit merges nothing: commit the source's version first")
	default:
		return c.merge(ctx, f, ours, base)
	}
	return nil
}

// merge merges the change of a file into HEAD's version.
func (c *commit) merge(ctx context.Context, f *file, ours, base gitcommit.Entry) error {
	f.committed = ours
	if ours.Mode == base.Mode {
		f.committed.Mode = f.head.Mode
	} else if f.head.Mode != base.Mode {
		f.committed.Mode = ours.Mode
	}
	if !isFile(ours.Mode) || !isFile(base.Mode) || !isFile(f.head.Mode) {
		f.stop(apply.Conflict, "HEAD has another version than the one that the sandbox changed, and they are not all files")
		return nil
	}
	switch {
	case ours.ID == base.ID:
		f.committed.ID = f.head.ID
		return nil
	case f.head.ID == base.ID:
		return nil
	}
	name, ok, err := c.repo.Merge(ctx, f.ours, f.base, f.head.ID)
	if err != nil {
		return err
	}
	if !ok {
		f.stop(apply.Conflict, "it does not merge with HEAD's version: commit the source's version first")
		return nil
	}
	ids, err := c.repo.Hash(ctx, []string{name})
	if err != nil {
		return err
	}
	f.committed.ID = ids[0]
	return nil
}

func isFile(mode string) bool { return mode == gitcommit.Regular || mode == gitcommit.Executable }

// checkPlaces refuses a file where HEAD has a directory, or below a file or submodule of HEAD.
func (c *commit) checkPlaces(head map[string]gitcommit.Entry) {
	dirs := map[string]string{} // with a file below that stays
	for name := range head {
		if e, is := c.changed[name]; is && e == (gitcommit.Entry{}) {
			continue
		}
		for dir := path.Dir(name); dir != "." && dirs[dir] == ""; dir = path.Dir(dir) {
			dirs[dir] = name
		}
	}
	for _, f := range c.files {
		if e, is := c.changed[f.at]; !is || e == (gitcommit.Entry{}) {
			continue
		}
		if below := dirs[f.at]; below != "" {
			f.stop(apply.Conflict, fmt.Sprintf("HEAD has %s below it", vpath.Escape(below)))
		}
		for dir := path.Dir(f.at); dir != "."; dir = path.Dir(dir) {
			e, is := head[dir]
			if now, changed := c.changed[dir]; changed {
				e, is = now, now != gitcommit.Entry{}
			}
			if is && e != (gitcommit.Entry{}) {
				f.stop(apply.Conflict, fmt.Sprintf("HEAD has a file at %s", vpath.Escape(dir)))
			}
		}
	}
}
