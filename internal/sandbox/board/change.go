package board

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Change is how a table has changed, for those who know it as it was before.
type Change struct {
	From  uint64   // Table.Changes before
	To    uint64   // and after
	Ended []string // paths, as Lock.Path
	Begun []Lock   // also those that replace another one of the path
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

// Apply returns t with the locks as they are after c, without expired locks and without the
// requests that wait. t.Changes must be c.From. Apply does not change the lists of t.
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

// Append appends c in the form that ParseChange reads.
func (c *Change) Append(to []byte) []byte {
	to = binary.AppendUvarint(to, c.From)
	to = binary.AppendUvarint(to, c.To)
	to = binary.AppendUvarint(to, uint64(len(c.Ended)))
	for _, path := range c.Ended {
		to = appendText(to, path)
	}
	to = binary.AppendUvarint(to, uint64(len(c.Begun)))
	for _, l := range c.Begun {
		to = appendText(to, string(l.ID))
		to = appendText(to, l.Name)
		to = binary.AppendUvarint(to, uint64(l.PID))
		to = appendText(to, l.Path)
		advisory := uint64(0)
		if l.Advisory {
			advisory = 1
		}
		to = binary.AppendUvarint(to, advisory)
		to = appendTime(to, l.Since)
		to = appendTime(to, l.Until)
		to = binary.AppendUvarint(to, l.Ticket)
	}
	return to
}

// ParseChange reads what Append has written. Errors: Invalid.
func ParseChange(text []byte) (Change, error) {
	p := parser{text: text}
	c := Change{From: p.number(), To: p.number()}
	for range p.number() {
		if p.failed {
			break
		}
		c.Ended = append(c.Ended, p.string())
	}
	for range p.number() {
		if p.failed {
			break
		}
		var l Lock
		l.ID, l.Name, l.PID = record.ID(p.string()), p.string(), int(p.number())
		l.Path, l.Advisory = p.string(), p.number() != 0
		l.Since, l.Until = p.time(), p.time()
		l.Ticket = p.number()
		c.Begun = append(c.Begun, l)
	}
	if p.failed || len(p.text) > 0 {
		return Change{}, errdefs.New(errdefs.Invalid, "locks: not a change")
	}
	return c, nil
}

func appendText(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

// appendTime appends seconds since 1970, and nanoseconds: in nanoseconds alone, a lock could not
// end after 2262.
func appendTime(to []byte, t time.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(to, t.Unix()), uint64(t.Nanosecond()))
}

// parser reads a change. After a failure it returns zero values.
type parser struct {
	text   []byte
	failed bool
}

func (p *parser) number() uint64 {
	v, n := binary.Uvarint(p.text)
	p.skip(n)
	return v
}

func (p *parser) time() time.Time {
	seconds, n := binary.Varint(p.text)
	p.skip(n)
	return time.Unix(seconds, int64(p.number())).UTC()
}

func (p *parser) string() string {
	n := p.number()
	if n > uint64(len(p.text)) {
		p.skip(0)
		return ""
	}
	s := string(p.text[:n])
	p.text = p.text[n:]
	return s
}

// skip drops the n bytes of a number. If n is not positive, no number could be read.
func (p *parser) skip(n int) {
	if n <= 0 {
		p.failed, p.text, n = true, nil, 0
	}
	p.text = p.text[n:]
}
