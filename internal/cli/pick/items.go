package pick

import (
	"fmt"
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// itemsOf returns what to ask about, in the order of the files; the groups come last. What changed
// in a git directory is one item, because it is applied as a whole. The new name of a renamed file
// stands for both.
func (a *asker) itemsOf(files []review.FileDiff, groups []review.Group) []*item {
	var items []*item
	together := map[string][]*review.FileDiff{} // files of a git directory, or of a group
	var names []string
	for i := range files {
		f := &files[i]
		name := f.Group
		if dir, _, is := review.GitDirOf(f.Path); is {
			name = string(dir)
		}
		switch {
		case f.LeftOut != "":
		case name != "":
			if together[name] == nil {
				names = append(names, name)
			}
			together[name] = append(together[name], f)
		case f.RenamedTo == "":
			items = append(items, a.ofFile(f, files))
		}
	}
	for _, name := range names {
		items = append(items, a.ofMany(together[name], groups))
	}
	return items
}

// ofFile asks about a file, by parts if it has any.
func (a *asker) ofFile(f *review.FileDiff, files []review.FileDiff) *item {
	it := &item{head: func() { a.out.Head(f) }}
	it.load = func() ([]*question, error) {
		c, err := a.review.Content(f)
		if err != nil {
			return nil, err
		}
		set := hunk.Of(f, &c)
		if !set.HasParts() {
			return a.whole(f, set, files)
		}
		it.names = func() { a.out.Names(f) }
		var questions []*question
		if set.Mode != "" {
			questions = append(questions, &question{text: "Apply the change of the mode", ids: []string{set.Mode}, names: true, show: func() error {
				a.out.Names(f)
				return nil
			}})
		}
		for _, h := range set.Text {
			questions = append(questions, a.ofHunk(h))
		}
		return questions, nil
	}
	return it
}

func (a *asker) ofHunk(h hunk.Hunk) *question {
	return &question{text: "Apply this hunk", pieces: h.Pieces, ids: []string{h.ID}, show: func() error {
		a.out.Hunk(h.Hunk)
		return nil
	}}
}

// whole asks about a change that is one unit.
func (a *asker) whole(f *review.FileDiff, set hunk.Set, files []review.FileDiff) ([]*question, error) {
	ids := []string{set.Whole}
	if i := slices.IndexFunc(files, func(o review.FileDiff) bool { return f.RenamedFrom != "" && o.RenamedTo == f.Path }); i >= 0 {
		c, err := a.review.Content(&files[i])
		if err != nil {
			return nil, err
		}
		ids = append(ids, hunk.Of(&files[i], &c).Whole)
	}
	if slices.Contains(ids, "") {
		a.out.Say(fmt.Sprintf("# %s: too large to be chosen; to apply it, name it and use --latest", changes.Quote(f.Path)))
		return nil, nil
	}
	return []*question{{text: wholeText(f), ids: ids, show: func() error { return a.out.Whole(f) }}}, nil
}

func wholeText(f *review.FileDiff) string {
	switch {
	case f.RenamedFrom != "":
		return "Apply this renaming"
	case f.Status == changes.Added:
		return "Apply this new " + record.TypeName(f.New.Mode)
	case f.Status == changes.Deleted:
		return "Apply this deletion"
	}
	return "Apply this change"
}

// ofMany asks about files that are applied together.
func (a *asker) ofMany(files []*review.FileDiff, groups []review.Group) *item {
	inGroup := map[string]bool{}
	for _, f := range files {
		inGroup[f.Group] = true
	}
	head := func() {
		for _, f := range files {
			if f.Group == "" {
				a.out.Head(f)
			}
		}
	}
	show := func() error {
		for _, f := range files {
			if f.Group != "" {
				continue
			}
			if err := a.out.Whole(f); err != nil {
				return err
			}
		}
		for i := range groups {
			if inGroup[groups[i].Name] {
				a.out.Group(groups[i])
			}
		}
		return nil
	}
	return &item{head: head, load: func() ([]*question, error) {
		q := &question{text: "Apply " + review.Count(len(files), "change") + " together", show: show}
		for _, f := range files {
			c, err := a.review.Content(f)
			if err != nil {
				return nil, err
			}
			id := hunk.Of(f, &c).Whole
			if id == "" {
				a.out.Say(fmt.Sprintf("# %s: too large to be chosen; to apply it, name it and use --latest", changes.Quote(f.Path)))
				continue
			}
			q.ids = append(q.ids, id)
		}
		if len(q.ids) == 0 {
			return nil, nil
		}
		return []*question{q}, nil
	}}
}
