package review

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// futureTree is the source as it may be after an apply: what the delta makes,
// and what the source has, for the part of the changes that is applied may
// leave any of it in place. The source is asked by handle, once for each path.
type futureTree struct {
	stack *layer.Stack
	delta map[vpath.Path]*layer.Change // but for deletions
	made  map[vpath.Path]member        // by the delta, by directory as foldedPath has it
	known map[vpath.Path]sourceEntry
}

// sourceEntry is what the source has at a path.
type sourceEntry struct {
	mode uint32 // 0: nothing
	// opaque says that it is not the source's to tell what is below: a mount, or
	// what the user may not look into.
	opaque bool
}

func (e sourceEntry) isThere() bool { return e.mode != 0 || e.opaque }

func newFutureTree(stack *layer.Stack, changes []layer.Change) *futureTree {
	t := &futureTree{
		stack: stack, delta: make(map[vpath.Path]*layer.Change, len(changes)),
		made: map[vpath.Path]member{}, known: map[vpath.Path]sourceEntry{},
	}
	for i := range changes {
		c := &changes[i]
		if c.Kind == layer.Deleted {
			continue
		}
		t.delta[c.Path] = c
		if folded := foldedPath(c.Path); foldedMembers[folded.Base()] != 0 {
			t.made[folded.Dir()] |= foldedMembers[folded.Base()]
		}
	}
	return t
}

// source returns what the source has at p. It is not asked below what the
// delta made, nor below what is no directory.
func (t *futureTree) source(p vpath.Path) sourceEntry {
	if p.IsRoot() {
		return sourceEntry{mode: unix.S_IFDIR}
	}
	if known, ok := t.known[p]; ok {
		return known
	}
	var e sourceEntry
	above := t.source(p.Dir())
	c := t.delta[p]
	switch {
	case above.opaque || !record.IsDir(above.mode):
	case c != nil && c.Kind == layer.Created && c.Base != nil && c.Base.Absent:
	default:
		info, err := t.stack.SourceInfo(p)
		switch {
		case err == nil:
			e = sourceEntry{info.Mode, info.Mounted}
		case !errdefs.Is(err, errdefs.NotFound) && !errdefs.Is(err, errdefs.Precondition):
			e.opaque = true
		}
	}
	t.known[p] = e
	return e
}

// The bounds of following one link; a kernel follows 40 (path_resolution(7)).
const (
	maxLinks = 40
	maxSteps = 2000
)

// place is a point on the way of a link: a directory reached, and what is still
// to be walked from there.
type place struct {
	dir   vpath.Path
	rest  string
	links int
}

// ofLink returns the mark that a link at p deserves by where it leads.
func (m *marker) ofLink(p vpath.Path, target string) *RiskFlag {
	ends, why := m.follow(p, target)
	if why != "" {
		return &RiskFlag{TrustedLater, why}
	}
	var mark *RiskFlag
	for _, end := range ends {
		mark = graver(mark, m.ofEnd(end))
	}
	if mark == nil && m.table.IsDirOfMarks(p.Base()) {
		mark = &RiskFlag{TrustedLater, "link in place of a directory in which tools look"}
	}
	return mark
}

// follow walks a link at p step by step through the links of the source and the
// delta, by each of them where the two differ, and returns where it may end. Else
// it says why that is not in the source, or not known.
func (m *marker) follow(p vpath.Path, target string) (ends []vpath.Path, why string) {
	const outside = "link out of the source"
	if path.IsAbs(target) {
		return nil, outside
	}
	pending := []place{{dir: p.Dir(), rest: target, links: 1}}
	for steps := 0; len(pending) > 0; steps++ {
		at := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if steps > maxSteps || at.links > maxLinks {
			return nil, "link that leads through too many links, or in a circle"
		}
		if at.rest == "" {
			ends = append(ends, at.dir)
			continue
		}
		next, out := m.step(at)
		if out {
			return nil, outside
		}
		pending = append(pending, next...)
	}
	return ends, ""
}

// step walks one element on. A mount is not the source's: it is out.
func (m *marker) step(at place) (next []place, out bool) {
	name, rest, _ := strings.Cut(at.rest, "/")
	switch name {
	case "", ".":
		return []place{{at.dir, rest, at.links}}, false
	case "..":
		if at.dir.IsRoot() {
			return nil, true
		}
		return []place{{at.dir.Dir(), rest, at.links}}, false
	}
	p := at.dir.Child(name)
	targets, straight, opaque := m.tree.ways(p)
	if opaque {
		return nil, true
	}
	for _, target := range targets {
		if path.IsAbs(target) {
			return nil, true
		}
		next = append(next, place{at.dir, target + "/" + rest, at.links + 1})
	}
	if straight {
		next = append(next, place{p, rest, at.links})
	}
	return next, false
}

// ways returns how a walk goes on at p: by which links, and straight where it
// may be no link.
func (t *futureTree) ways(p vpath.Path) (targets []string, straight, opaque bool) {
	source := t.source(p)
	if source.opaque {
		return nil, false, true
	}
	sourceLink := source.mode&record.TypeBits == unix.S_IFLNK
	c := t.delta[p]
	straight = !sourceLink
	if sourceLink {
		target, err := t.stack.SourceReadlink(p)
		if err != nil {
			return nil, false, true
		}
		targets = append(targets, target)
	}
	switch {
	case c == nil:
	case c.Info.Mode&record.TypeBits != unix.S_IFLNK:
		straight = true
	default:
		target, err := t.stack.Readlink(p)
		if err != nil {
			return nil, false, true
		}
		targets = append(targets, target)
		straight = straight && source.isThere()
	}
	return targets, straight, false
}

// ofEnd returns the mark of a link that ends at p.
func (m *marker) ofEnd(p vpath.Path) *RiskFlag {
	if p.IsRoot() {
		return nil
	}
	_, rel, kind := m.repositoryOf(p)
	inGit := kind != noRepository && isStore(rel)
	mark := m.byPath(p, false)
	switch {
	case mark != nil:
		return &RiskFlag{TrustedLater, "link to where a mark is: " + mark.Reason}
	case inGit || strings.EqualFold(foldedPath(p).Base(), ".git") || m.repositoryAt(p) != noRepository:
		return &RiskFlag{TrustedLater, "link into a git repository's own directory"}
	}
	return nil
}

func isAbsent(err error) bool { return errdefs.Is(err, errdefs.NotFound) }
