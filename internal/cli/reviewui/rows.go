package reviewui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// row is a line of the list: a file, or with file -1 the title of a section.
type row struct {
	section int
	file    int
}

// section is a part of the list that is staged as one: a risk, or a group of the review.
type section struct {
	title  string
	kind   sectionKind
	name   string // of a group
	folded bool
	files  []int
}

type sectionKind int

const (
	runsOnHost sectionKind = iota
	trustedLater
	ordinary
	grouped
	notApplied
)

var sectionTitles = [...]string{
	runsOnHost: "Runs on the host", trustedLater: "Trusted later", ordinary: "Changes", notApplied: "Apply never takes these",
}

// kindOf is the section that a file is in.
func kindOf(f *review.FileDiff) sectionKind {
	switch {
	case f.LeftOut != "":
		return notApplied
	case f.Group != "":
		return grouped
	case f.Mark == nil:
		return ordinary
	case f.Mark.Risk == review.RunsOnHost:
		return runsOnHost
	}
	return trustedLater
}

// arrange puts the files in sections. unfolded are the groups whose files are shown.
func arrange(files []review.FileDiff, groups []review.Group, unfolded map[string]bool) []section {
	plain := make([]section, len(sectionTitles))
	for kind := range plain {
		plain[kind] = section{title: sectionTitles[kind], kind: sectionKind(kind)}
	}
	inGroups := make([]section, len(groups))
	index := map[string]int{}
	for i := range groups {
		g := &groups[i]
		inGroups[i] = section{title: groupTitle(g), kind: grouped, name: g.Name, folded: !unfolded[g.Name]}
		index[g.Name] = i
	}
	for i := range files {
		f := &files[i]
		kind := kindOf(f)
		at, is := index[f.Group]
		switch {
		case f.RenamedTo != "": // its new name is listed
		case kind == grouped && is:
			inGroups[at].files = append(inGroups[at].files, i)
		case kind == grouped:
			plain[ordinary].files = append(plain[ordinary].files, i)
		default:
			plain[kind].files = append(plain[kind].files, i)
		}
	}
	all := slices.Concat(plain[:grouped], inGroups, plain[notApplied:])
	return slices.DeleteFunc(all, func(s section) bool { return len(s.files) == 0 })
}

// groupTitle says what a group is, and which of its files are marked.
func groupTitle(g *review.Group) string {
	title := []string{present.GroupTitle(g)}
	for i := range g.Marks {
		if m := &g.Marks[i]; !m.IsUsual() {
			title = append(title, fmt.Sprintf("%s: %d (%s)", m.Risk, len(m.Paths), m.Reason))
		}
	}
	return strings.Join(title, " · ")
}

// rowsOf lists the sections as far as the filter matches.
func rowsOf(sections []section, files []review.FileDiff, filter string) []row {
	filter = strings.ToLower(filter)
	var rows []row
	for i := range sections {
		s := &sections[i]
		start := len(rows)
		rows = append(rows, row{i, -1})
		for _, f := range s.files {
			if filter == "" && s.folded {
				break
			}
			if filter == "" || strings.Contains(strings.ToLower(present.Written(files[f].Path)), filter) {
				rows = append(rows, row{i, f})
			}
		}
		if filter != "" && len(rows) == start+1 {
			rows = rows[:start]
		}
	}
	return rows
}

// fileText is what the list says of a file.
func fileText(f *review.FileDiff, mount string) string {
	text := present.WrittenIn(mount, f.Path)
	if f.RenamedFrom != "" {
		text = present.WrittenIn(mount, f.RenamedFrom) + " → " + text
	}
	return text
}

// fileReason is what a person should know before staging a file, "" for nothing.
func fileReason(f *review.FileDiff) string {
	switch {
	case f.LeftOut != "":
		return f.LeftOut
	case f.NotPlaced != "":
		return "cannot be applied: " + f.NotPlaced
	case f.Stale:
		return "conflict: the source has changed since"
	case f.Mark != nil:
		return f.Mark.Reason
	case f.Keeping.Rule && f.Keeping.Waits != "":
		return "waits in spite of apply: keep: " + f.Keeping.Waits
	}
	return ""
}

// withPartner are the paths that are staged with a file: a rename is two of them.
func withPartner(f *review.FileDiff) []vpath.Path {
	if f.RenamedFrom != "" {
		return []vpath.Path{f.Path, f.RenamedFrom}
	}
	return []vpath.Path{f.Path}
}
