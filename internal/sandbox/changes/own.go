package sandbox

import (
	"fmt"
	"slices"

	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/vpath"
)

// An own entry is one that a command made at a path where the policy hides what
// the source has (docs/adr/0027). No apply takes it.

// ownReason says why an own entry is left out.
const ownReason = "made under a name that the policy hides: never applied"

// movedReason begins why a deletion is left out, see findMoved.
const movedReason = "not deleted: its content was moved to "

// isOwn reports whether the change is of an own entry.
func (c *change) isOwn() bool { return c.Path.IsOwn() }

// leftOut says why no apply takes the change, "" if one may.
func (c *change) leftOut() string {
	switch {
	case c.isOwn():
		return ownReason
	case c.movedTo != "":
		return fmt.Sprintf("%s%s, which is never applied", movedReason, quote(c.movedTo.Plain()))
	}
	return ""
}

// findMoved notes of what is deleted that its content is in an own entry now: as
// that is never applied, the source must keep it. The number that an entry shows
// stays with it wherever it is moved.
func findMoved(all []layer.Change, list []change) {
	own := map[uint64]vpath.Path{}
	for _, c := range all {
		if c.Path.IsOwn() {
			own[c.Info.Ino] = c.Path
		}
	}
	if len(own) == 0 {
		return
	}
	for i := range list {
		c := &list[i]
		if c.status != Deleted || c.kept != "" {
			continue
		}
		// The source may have another file there now, or be another directory.
		for _, number := range append(layer.NumbersOf(c.Path, c.Base), c.Info.Ino) {
			if to, ok := own[number]; ok {
				c.movedTo = to
			}
		}
	}
}

// leaveOut settles the outcome of a step that no apply takes: it is refused if it
// was asked for by name.
func (p *plan) leaveOut(s *step, why string) {
	at := s.Path
	if s.isOwn() {
		at = s.Path.OwnRoot().Plain()
	}
	if slices.ContainsFunc(p.named, func(named vpath.Path) bool { return named.Within(at) }) {
		s.stop(Refused, "%s", why)
		return
	}
	s.stop(LeftOut, "%s", why)
}
