package cli

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// printApplied prints a line for each path: first those that were not applied, then the marked
// ones, each with its mark, then the others. A group is one line for each outcome, as is a
// directory in which many files were deleted. Where a path stopped the apply, the others are only
// counted. verbose prints a line for each path.
func (e *env) printApplied(c changesIn, result apply.Result, verbose bool) error {
	paths := result.Listed()
	slices.SortStableFunc(paths, func(a, b apply.PathResult) int { return placeInList(&a) - placeInList(&b) })
	stopped := result.Count(apply.Conflict)+result.Count(apply.Refused) > 0
	lines := appliedLines{shown: c.shown, groups: map[appliedGroup]int{}}
	others, deleted := 0, deletedTrees(paths)
	for i := range paths {
		p := &paths[i]
		tree := deleted[p.Path]
		switch {
		case stopped && p.Outcome == apply.Skipped && !verbose:
			others++
		case verbose:
			lines.path(p)
		case tree != nil:
			lines.tree(tree)
		default:
			lines.fold(p)
		}
	}
	out := bufio.NewWriter(e.stdout)
	for _, line := range append(lines.list, lines.ofGroups(result.Groups)...) {
		fmt.Fprintln(out, line) // Flush returns the error
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if others > 0 {
		e.say("%s not applied, because of these: --verbose lists them", plural(others, "other change"))
	}
	e.sayWrittenAgain(c, result.Changed)
	return nil
}

// inGroup is the place of what a group may tell.
const inGroup = 4

// placeInList is where a path stands in the list of an apply.
func placeInList(p *apply.PathResult) int {
	switch {
	case p.Outcome == apply.Conflict, p.Outcome == apply.Refused, p.Outcome == apply.Failed:
		return 0
	case p.Outcome == apply.ChangedSinceReview:
		return 1
	case p.Group != "":
		return inGroup
	case p.Mark != nil:
		return 2
	}
	return 3
}

// appliedLines are the lines of an apply.
type appliedLines struct {
	shown  func(vpath.Path) string
	list   []string
	groups map[appliedGroup]int // the number of its paths
}

type appliedGroup struct {
	name    string
	outcome apply.Outcome
	reason  string
}

// fold adds p as a line, or to what is told of its group.
func (l *appliedLines) fold(p *apply.PathResult) {
	switch {
	case p.Group != "" && !p.Merged && (placeInList(p) == inGroup || p.Reason == apply.PartOfRepository):
		l.groups[appliedGroup{p.Group, p.Outcome, p.Reason}]++
	case p.RenamedTo != "" && p.Outcome == apply.Applied:
		// it is told at what it became
	default:
		l.path(p)
	}
}

func (l *appliedLines) path(p *apply.PathResult) {
	word := string(p.Outcome)
	if p.Merged {
		word = "merged"
	}
	line := fmt.Sprintf("%s\t%s\t%s", word, p.Status, l.shown(p.Path))
	if p.RenamedFrom != "" {
		line += "\trenamed from " + l.shown(p.RenamedFrom)
	}
	if p.OfHunks > 0 {
		line += fmt.Sprintf("\t%d of %s", p.Hunks, plural(p.OfHunks, "hunk"))
	}
	if p.Conflicts > 0 {
		line += "\t" + plural(p.Conflicts, "conflict")
	}
	if p.Mark != nil {
		line += "\t! " + p.Mark.Reason
	}
	if p.Reason != "" {
		line += "\t" + vpath.EscapeMessage(p.Reason)
	}
	l.list = append(l.list, line)
}

// ofGroups are the lines of the groups.
func (l *appliedLines) ofGroups(groups []review.Group) []string {
	var lines []string
	for _, g := range groups {
		for _, told := range l.told(g.Name) {
			line := fmt.Sprintf("%s\t%s\t%s", told.outcome, plural(l.groups[told], "file"), g.Name)
			if len(g.Lines) > 0 {
				line += "\t" + g.Lines[0]
			}
			if told.reason != "" {
				line += "\t" + vpath.EscapeMessage(told.reason)
			}
			lines = append(lines, line+marksOf(&g))
			for _, more := range g.Lines[min(1, len(g.Lines)):] {
				lines = append(lines, fmt.Sprintf("%s\t\t%s\t%s", told.outcome, g.Name, more))
			}
		}
	}
	return lines
}

// told are the outcomes of the group with this name.
func (l *appliedLines) told(name string) []appliedGroup {
	var list []appliedGroup
	for g := range l.groups {
		if g.name == name {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b appliedGroup) int {
		return cmp.Or(cmp.Compare(a.outcome, b.outcome), cmp.Compare(a.reason, b.reason))
	})
	return list
}
