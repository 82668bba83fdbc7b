package merge

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/merge3"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// mergeEntries decides a path at which both sides have changed b in different ways.
func (p *plan) mergeEntries(ctx context.Context, at vpath.Path, b, o, t *entry) error {
	into, from := p.o.Into.Name(), p.o.ref()
	switch {
	case o.isAbsent(), t.isAbsent():
		return p.mergeRemoval(at, b, o, t)
	case o.kind() != t.kind():
		p.resolve(at, conflict.TypeChange, o, t, "a %s in %s, and a %s in %s", record.TypeName(o.mode), into, record.TypeName(t.mode), from)
		return nil
	}
	m := merging{plan: p, at: at, b: b, o: o, t: t}
	switch o.kind() {
	case unix.S_IFREG:
		if done, err := m.content(ctx); err != nil || !done {
			return err
		}
	case unix.S_IFLNK:
		m.clash(conflict.Link, "both changed the target")
		return nil
	default:
		becomes := *o
		m.result = &becomes
	}
	m.permissions()
	return nil
}

// mergeRemoval reports that one side has removed, or moved, what the other one has changed.
func (p *plan) mergeRemoval(at vpath.Path, b, o, t *entry) error {
	remover, changer := p.ours, p.o.ref()
	name := p.o.Into.Name()
	if t.isAbsent() {
		remover, name, changer = p.theirs, p.o.ref(), p.o.Into.Name()
	}
	to, err := p.movedTo(remover, at, b)
	if err != nil {
		return err
	}
	if to != "" {
		p.resolve(at, conflict.RenameEdit, o, t, "%s moved it to %s, and %s changed it", name, changes.Quote(to), changer)
		return nil
	}
	p.resolve(at, conflict.DeleteModify, o, t, "%s deleted it, and %s changed it", name, changer)
	return nil
}

// moves are the files that a state has made, by size.
type moves map[int64][]vpath.Path

// movedTo returns the file that a state has made with the content of b, which it has removed; "" if
// there is none.
func (p *plan) movedTo(s *state, from vpath.Path, b *entry) (vpath.Path, error) {
	if !b.isRegular() || b.size == 0 {
		return "", nil
	}
	var found vpath.Path
	for _, at := range p.madeBy(s)[b.size] {
		e, err := s.at(at)
		if err != nil {
			return "", err
		}
		same, err := e.hasContentOf(b)
		if err != nil {
			return "", err
		}
		isBetter := found == "" || at.Base() == from.Base() && found.Base() != from.Base() || comparePaths(at, found) < 0
		if same && isBetter {
			found = at
		}
	}
	return found, nil
}

// madeBy returns the files that a state has made.
func (p *plan) madeBy(s *state) moves {
	if p.moves[s] == nil {
		made := moves{}
		for at, c := range s.changed {
			if c.Status == changes.Added && !at.IsOwn() && c.Info.Mode&record.TypeBits == unix.S_IFREG {
				made[c.Info.Size] = append(made[c.Info.Size], at)
			}
		}
		p.moves[s] = made
	}
	return p.moves[s]
}

// merging merges two entries of one type.
type merging struct {
	plan     *plan
	at       vpath.Path
	b, o, t  *entry
	result   *entry
	taken    bool // the content is theirs
	merged   bool // the content is of both
	resolved conflict.Kind
}

// content decides the content of a regular file. done is false if a conflict has decided the path.
func (m *merging) content(ctx context.Context) (done bool, err error) {
	becomes := *m.o
	m.result = &becomes
	same, err := m.o.hasContentOf(m.t)
	if err != nil || same {
		return true, err
	}
	if same, err = m.t.hasContentOf(m.b); err != nil || same {
		return true, err
	}
	if same, err = m.o.hasContentOf(m.b); err != nil {
		return false, err
	}
	if same {
		becomes = *m.t
		becomes.mode, m.taken = m.o.mode, true
		return true, nil
	}
	return m.lines(ctx)
}

// lines merges the content by lines.
func (m *merging) lines(ctx context.Context) (done bool, err error) {
	if isOfGit(m.at) {
		m.clash(conflict.Binary, "both changed it, and it is a file of git's")
		return false, nil
	}
	var texts [3][]byte // base, ours, theirs
	for i, e := range []*entry{m.b, m.o, m.t} {
		if i == 0 && e.kind() != unix.S_IFREG {
			continue // both made it
		}
		if e.size > textdiff.SizeLimit {
			m.clash(conflict.TooLarge, "both changed it, and it is too large to be merged by lines")
			return false, nil
		}
		text, known, err := e.read(textdiff.SizeLimit)
		if err != nil {
			return false, err
		}
		if !known {
			m.clash(conflict.NoBase, "both changed it, and what it was before is not known")
			return false, nil
		}
		texts[i] = text
	}
	r, err := merge3.Lines(ctx, texts[0], texts[1], texts[2])
	switch {
	case err != nil:
		return false, errdefs.New(errdefs.Canceled, "merge %s: %w", m.at, err)
	case r.Refused == merge3.TooLarge:
		m.clash(conflict.TooLarge, "both changed it, and it is too large to be merged by lines")
		return false, nil
	case r.Refused != "":
		m.clash(conflict.Binary, "both changed it, and it is no text")
		return false, nil
	case r.Clean:
		m.setText(texts[1], r.Text)
		return true, nil
	}
	return m.conflicting(texts[1], &r), nil
}

// clash decides or reports that both sides have another content.
func (m *merging) clash(kind conflict.Kind, reason string) {
	if m.kindOf(kind) == conflict.BothAdded {
		reason = "both made it, with another content"
	}
	m.plan.resolve(m.at, m.kindOf(kind), m.o, m.t, "%s", reason)
}

// kindOf is kind, or BothAdded if nothing was there before.
func (m *merging) kindOf(kind conflict.Kind) conflict.Kind {
	if m.b.isAbsent() {
		return conflict.BothAdded
	}
	return kind
}

// conflicting decides a text with conflicts.
func (m *merging) conflicting(ours []byte, r *merge3.Result) (done bool) {
	p := m.plan
	switch p.o.Resolve {
	case conflict.Ours:
		m.setText(ours, r.Ours())
	case conflict.Theirs:
		m.setText(ours, r.Theirs())
	case conflict.Markers:
		m.setText(ours, r.Markers(p.o.Into.Name(), p.o.ref()))
	default:
		n := len(r.Conflicts)
		places := fmt.Sprintf("%d places", n)
		if n == 1 {
			places = "one place"
		}
		if r.Rough {
			places += "; they differ in too many places to be compared line by line"
		}
		m.clash(conflict.Text, "both changed the same lines, in "+places)
		return false
	}
	m.resolved = m.kindOf(conflict.Text)
	return true
}

func (m *merging) setText(ours, text []byte) {
	if bytes.Equal(ours, text) {
		return
	}
	m.merged = true
	m.result = &entry{mode: m.o.mode, size: int64(len(text)), text: text}
}

// permissions decides the permissions and adds the step.
func (m *merging) permissions() {
	p, o, t := m.plan, m.o.perm(), m.t.perm()
	hasBase := m.b.kind() == m.o.kind()
	becomes := o
	switch {
	case o == t, hasBase && t == m.b.perm():
	case hasBase && o == m.b.perm():
		becomes = t
	case p.o.Resolve == conflict.Theirs:
		becomes, m.resolved = t, conflict.Mode
	case p.o.Resolve == conflict.Ours:
		m.resolved = conflict.Mode
	default:
		p.stop(m.at, conflict.Mode, "%s made it %04o, and %s made it %04o", p.o.Into.Name(), o, p.o.ref(), t)
		return
	}
	m.result.mode = m.o.mode&^changes.PermOf(m.o.mode) | becomes
	s := &step{path: m.at, was: m.o, becomes: m.result, merged: m.merged, resolved: m.resolved}
	stays := !m.merged && !m.taken
	s.modeOnly = stays && !m.o.linked
	if stays && becomes == o {
		s.becomes = nil
	}
	if s.becomes != nil || s.resolved != "" {
		p.add(s)
	}
}

// isOfGit reports whether a path is in a .git directory.
func isOfGit(at vpath.Path) bool {
	for name := range at.Elements() {
		if name == ".git" {
			return true
		}
	}
	return false
}
