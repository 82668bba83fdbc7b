package review

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// The bounds of looking for other names of a path.
const (
	maxAliases   = 64     // of one path
	maxLinksRead = 10_000 // of the source
)

// aliases are the links that lead to a path, by that path: what tools look for
// under the name of a link they find where it ends.
type aliases map[vpath.Path][]vpath.Path

// linksTo returns the links of the delta, and those of the source that lie at its
// top or in a directory there whose name begins with a dot, where tools have their
// files. It is made at the first call.
func (m *marker) linksTo() aliases {
	if m.aliases != nil {
		return m.aliases
	}
	m.aliases = aliases{}
	for p, c := range m.tree.delta {
		if c.Info.Mode&record.TypeBits != unix.S_IFLNK {
			continue
		}
		if target, err := m.tree.stack.Readlink(p); err == nil {
			m.addAlias(p, target)
		}
	}
	left := maxLinksRead
	for _, dir := range m.addSourceLinks(vpath.Root, &left) {
		m.addSourceLinks(dir, &left)
	}
	return m.aliases
}

// addSourceLinks adds the links in a directory of the source, and returns the
// directories in it whose names begin with a dot. What cannot be listed has none.
func (m *marker) addSourceLinks(dir vpath.Path, left *int) (hidden []vpath.Path) {
	entries, err := m.tree.stack.ReadSourceDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		p := dir.Child(e.Name)
		switch e.Mode & record.TypeBits {
		case unix.S_IFDIR:
			if strings.HasPrefix(e.Name, ".") {
				hidden = append(hidden, p)
			}
		case unix.S_IFLNK:
			if *left--; *left < 0 {
				return nil
			}
			if target, err := m.tree.stack.SourceReadlink(p); err == nil {
				m.addAlias(p, target)
			}
		}
	}
	return hidden
}

// addAlias adds a link if its name can matter: a package manager makes very many.
func (m *marker) addAlias(link vpath.Path, target string) {
	if !m.table.Knows(link) {
		return
	}
	ends, _ := m.follow(link, target)
	for _, end := range ends {
		if end != link && !slices.Contains(m.aliases[end], link) {
			m.aliases[end] = append(m.aliases[end], link)
		}
	}
}

// byTheLink stands in the reason of a mark before the link by which it is deserved.
const byTheLink = ", by the link "

// byLinks returns the mark that p deserves by its other names.
func (m *marker) byLinks(p vpath.Path, isDir bool) (mark *RiskFlag) {
	links := m.linksTo()
	if len(links) == 0 {
		return nil
	}
	names := []vpath.Path{p}
	for i := 0; i < len(names); i++ {
		at := names[i]
		if i > 0 {
			if found := m.lookUp(at, isDir); found != nil {
				mark = graver(mark, &RiskFlag{found.Risk, found.Reason + byTheLink + changes.Quote(at)})
			}
		}
		for end := at; !end.IsRoot(); end = end.Dir() {
			for _, link := range links[end] {
				name := link + at[len(end):]
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			if len(names) > maxAliases {
				return graver(mark, &RiskFlag{TrustedLater, "links lead to it by too many names"})
			}
		}
	}
	return mark
}
