package changes

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// An own entry is one that a command made at a path where the policy hides what
// the source has (docs/adr/0027). No apply takes it.

// OwnReason says why an own entry is left out.
const OwnReason = "made under a name that the policy hides: never applied"

// MovedReason begins why a deletion is left out, see findMoved.
const MovedReason = "not deleted: its content was moved to "

// IsOwn reports whether the change is of an own entry.
func (c *Change) IsOwn() bool { return c.Path.IsOwn() }

// LeftOut says why no apply takes the change, "" if one may.
func (c *Change) LeftOut() string {
	switch {
	case c.IsOwn():
		return OwnReason
	case c.movedTo != "":
		return fmt.Sprintf("%s%s, which is never applied", MovedReason, Quote(c.movedTo.Plain()))
	}
	return ""
}

// findMoved notes of what is deleted that its content is in an own entry now: as
// that is never applied, the source must keep it. The number that an entry shows
// stays with it wherever it is moved.
func findMoved(all []layer.Change, list []Change) {
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
		if c.Status != Deleted || c.Kept != "" {
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
