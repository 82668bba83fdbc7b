package changes

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// A command makes an own entry at a path where the policy hides the source's entry
// (docs/adr/0027). An own entry is never applied.

// OwnReason is the reason why an own entry is left out.
const OwnReason = "made under a name that the policy hides: never applied"

// MovedReason is the beginning of the reason why a deletion is left out, see findMoved.
const MovedReason = "not deleted: its content was moved to "

// IsOwn reports whether the change is of an own entry.
func (c *Change) IsOwn() bool { return c.Path.IsOwn() }

// LeftOut returns the reason why the change is never applied, or "" if it may be.
func (c *Change) LeftOut() string {
	switch {
	case c.IsOwn():
		return OwnReason
	case c.movedTo != "":
		return fmt.Sprintf("%s%s, which is never applied", MovedReason, Quote(c.movedTo.Plain()))
	}
	return ""
}

// findMoved finds the deletions of files that were moved to own entries. Own entries are
// never applied, so the source must keep the deleted files. A moved file keeps the inode
// number that it shows.
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
		// The source may now be another directory, or have another file there.
		for _, number := range append(layer.NumbersOf(c.Path, c.Base), c.Info.Ino) {
			if to, ok := own[number]; ok {
				c.movedTo = to
			}
		}
	}
}
