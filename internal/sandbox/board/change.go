package board

import (
	"slices"
	"time"
)

// Change is how a table has changed, for those who know it as it was before.
type Change struct {
	From  uint64   `json:"from"` // Table.Changes before
	To    uint64   `json:"to"`   // and after
	Ended []string `json:"ended,omitempty"`
	Begun []Lock   `json:"begun,omitempty"`
}

// changeOf compares the locks of two versions of a table. No two locks have the same path.
func changeOf(before, after Table) *Change {
	c := &Change{From: before.Changes, To: after.Changes}
	were := make(map[string]Lock, len(before.Locks))
	for _, l := range before.Locks {
		were[l.Path] = l
	}
	for _, l := range after.Locks {
		if were[l.Path] != l {
			c.Begun = append(c.Begun, l)
		}
		delete(were, l.Path)
	}
	for _, l := range before.Locks {
		if _, ended := were[l.Path]; ended {
			c.Ended = append(c.Ended, l.Path)
		}
	}
	return c
}

// Apply changes the locks of t, of which Changes must be c.From, and drops those whose time is over.
// It does not change t's list in place, and leaves out the requests that wait.
func (c *Change) Apply(t Table, now time.Time) Table {
	locks := make([]Lock, 0, len(t.Locks)+len(c.Begun))
	for _, l := range t.Locks {
		if !slices.Contains(c.Ended, l.Path) && !slices.ContainsFunc(c.Begun, func(b Lock) bool { return b.Path == l.Path }) {
			locks = append(locks, l)
		}
	}
	t = Table{Version: tableVersion, Changes: c.To, Locks: append(locks, c.Begun...)}
	t.Prune(now, func(Holder) bool { return true })
	return t
}
