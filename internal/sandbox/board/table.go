package board

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// The bounds of the locks of a source. A request that exceeds them is refused.
const (
	// MaxPaths is how many paths one request may lock.
	MaxPaths = 64
	// MaxHeld is how many locks a sandbox may hold, and maxLocks how many there may be.
	MaxHeld  = 256
	maxLocks = 2048
	// maxWaiting is how many requests may wait, one of each sandbox.
	maxWaiting = 256
	// maxPathBytes bounds a path.
	maxPathBytes = 4096
)

// Holder is one run of a sandbox, from the start of its supervisor to its end.
type Holder struct {
	ID   record.ID `json:"id"`
	Name string    `json:"name"`
	PID  int       `json:"pid"` // of the supervisor
}

// Lock is a path that a sandbox has locked, with all below it. Two sandboxes never have locks of
// which one is at the other's path or below it.
type Lock struct {
	Holder
	// Path is the path in the source, as vpath.Path.Text returns it.
	Path string `json:"path"`
	// Advisory says that other sandboxes may still write there. Of a lock that is not, they may
	// read at most.
	Advisory bool      `json:"advisory,omitempty"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"` // zero: until the holder ends
	// Ticket is the request that took the lock.
	Ticket uint64 `json:"ticket"`
}

// Entry is a path that is locked, or for which a request waits.
type Entry struct {
	Sandbox  string    `json:"sandbox"`
	Path     string    `json:"path"`          // as Lock.Path
	Own      bool      `json:"own,omitempty"` // of the holder for whom the list is
	Advisory bool      `json:"advisory,omitempty"`
	Waits    bool      `json:"waits,omitempty"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"` // zero: until the sandbox stops
}

// Waiting is a request that waits for its turn.
type Waiting struct {
	Holder
	Paths    []string      `json:"paths"`
	Advisory bool          `json:"advisory,omitempty"`
	For      time.Duration `json:"for,omitempty"`
	Since    time.Time     `json:"since"`
	Ticket   uint64        `json:"ticket"`
}

// Table is the locks of a source, and the requests that wait, the oldest first.
type Table struct {
	Version int       `json:"version"`
	Last    uint64    `json:"last"`    // ticket
	Changes uint64    `json:"changes"` // how often the table was changed
	Locks   []Lock    `json:"locks,omitempty"`
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Request asks for locks.
type Request struct {
	Paths    []vpath.Path // all at once
	Advisory bool
	For      time.Duration // 0: until the holder ends
}

// Check refuses a request that means nothing, or too much. Errors: Invalid; Exhausted.
func (r Request) Check() error {
	switch {
	case len(r.Paths) == 0:
		return errdefs.New(errdefs.Invalid, "lock: a path is missing")
	case len(r.Paths) > MaxPaths:
		return errdefs.New(errdefs.Exhausted, "lock: %d paths: want at most %d in one request", len(r.Paths), MaxPaths)
	case r.For < 0:
		return errdefs.New(errdefs.Invalid, "lock: %s: want a time above 0, such as 10m", r.For)
	}
	for _, p := range r.Paths {
		if len(p) > maxPathBytes || p.IsOwn() {
			return errdefs.New(errdefs.Invalid, "lock: path %s: not a path of the source of at most %d bytes", vpath.Quote(string(p[:min(len(p), 80)])), maxPathBytes)
		}
	}
	return nil
}

// Blocker is what is in the way of a request.
type Blocker struct {
	Lock
	Waits bool // the other request waits too, and came first
}

// Acquire locks the paths of r for h if nothing is in the way, else it returns what is. A path that
// h has locked itself is locked anew. Errors: Exhausted; Precondition while another request of the
// sandbox waits, or as the time that h waits for.
func (t *Table) Acquire(h Holder, r Request, now time.Time) (ticket uint64, blocker *Blocker, err error) {
	if slices.ContainsFunc(t.Waiting, h.isWaiting) {
		return 0, nil, errdefs.New(errdefs.Precondition, "lock: the sandbox %s waits for other locks already", h.Name)
	}
	if b := t.blocker(h, texts(r.Paths), t.Waiting); b != nil {
		return 0, b, nil
	}
	ticket = t.Last + 1
	if err := t.grant(Waiting{Holder: h, Paths: texts(r.Paths), Advisory: r.Advisory, For: r.For, Ticket: ticket}, now); err != nil {
		return 0, nil, err
	}
	t.Last = ticket
	return ticket, nil, nil
}

// Wait puts r behind the other requests. Who holds a lock cannot wait for another one, so no two
// sandboxes ever wait for each other. Errors: Precondition; Exhausted.
func (t *Table) Wait(h Holder, r Request, now time.Time) (ticket uint64, err error) {
	switch {
	case slices.ContainsFunc(t.Waiting, h.isWaiting):
		return 0, errdefs.New(errdefs.Precondition, "lock: the sandbox %s waits for other locks already", h.Name)
	case slices.ContainsFunc(t.Locks, h.holds):
		return 0, errdefs.New(errdefs.Precondition, "lock: the sandbox %s has locks, and could wait for one that waits for these: unlock them first, then lock all paths in one request", h.Name)
	case len(t.Waiting) >= maxWaiting:
		return 0, errdefs.New(errdefs.Exhausted, "lock: %d requests wait already", len(t.Waiting))
	}
	t.Last++
	t.Waiting = append(t.Waiting, Waiting{Holder: h, Paths: texts(r.Paths), Advisory: r.Advisory, For: r.For, Since: now.UTC(), Ticket: t.Last})
	return t.Last, nil
}

// Promote grants the request of h that waits, if its turn has come.
func (t *Table) Promote(h Holder, now time.Time) bool {
	i := slices.IndexFunc(t.Waiting, h.isWaiting)
	if i < 0 {
		return false
	}
	w := t.Waiting[i]
	if t.blocker(h, w.Paths, t.Waiting[:i]) != nil || t.grant(w, now) != nil {
		return false
	}
	t.Waiting = slices.Delete(t.Waiting, i, i+1)
	return true
}

// Release ends locks of h: those that match has chosen. It returns their paths.
func (t *Table) Release(h Holder, match func(Lock) bool) []string {
	var paths []string
	t.Locks = slices.DeleteFunc(t.Locks, func(l Lock) bool {
		gone := l.Holder == h && match(l)
		if gone {
			paths = append(paths, l.Path)
		}
		return gone
	})
	return paths
}

// Withdraw ends the request of h that waits, and reports whether there was one.
func (t *Table) Withdraw(h Holder) bool {
	n := len(t.Waiting)
	t.Waiting = slices.DeleteFunc(t.Waiting, h.isWaiting)
	return len(t.Waiting) < n
}

// Prune drops the locks whose time is over, and what belongs to a holder that has ended. It
// reports whether it dropped anything.
func (t *Table) Prune(now time.Time, alive func(Holder) bool) bool {
	known := map[Holder]bool{}
	ended := func(h Holder) bool {
		is, asked := known[h]
		if !asked {
			is = !alive(h)
			known[h] = is
		}
		return is
	}
	locks, waiting := len(t.Locks), len(t.Waiting)
	t.Locks = slices.DeleteFunc(t.Locks, func(l Lock) bool {
		return !l.Until.IsZero() && !now.Before(l.Until) || ended(l.Holder)
	})
	t.Waiting = slices.DeleteFunc(t.Waiting, func(w Waiting) bool { return ended(w.Holder) })
	return len(t.Locks) < locks || len(t.Waiting) < waiting
}

// Entries lists the locks, then what requests wait for. Those of h are its own.
func (t *Table) Entries(h Holder) []Entry {
	list := []Entry{}
	for _, l := range t.Locks {
		list = append(list, Entry{Sandbox: l.Name, Path: l.Path, Own: l.Holder == h, Advisory: l.Advisory, Since: l.Since, Until: l.Until})
	}
	for _, w := range t.Waiting {
		for _, p := range w.Paths {
			list = append(list, Entry{Sandbox: w.Name, Path: p, Own: w.Holder == h, Advisory: w.Advisory, Waits: true, Since: w.Since})
		}
	}
	return list
}

// Next returns when the next lock ends by its time, if one does.
func (t *Table) Next() (end time.Time, ends bool) {
	for _, l := range t.Locks {
		if !l.Until.IsZero() && (!ends || l.Until.Before(end)) {
			end, ends = l.Until, true
		}
	}
	return end, ends
}

// blocker returns the first lock of another holder that overlaps with one of the paths, or the
// first of the requests.
func (t *Table) blocker(h Holder, paths []string, earlier []Waiting) *Blocker {
	for _, l := range t.Locks {
		if l.Holder != h && overlaps(paths, l.Path) {
			return &Blocker{Lock: l}
		}
	}
	for _, w := range earlier {
		for _, p := range w.Paths {
			if w.Holder != h && overlaps(paths, p) {
				return &Blocker{Lock: Lock{Holder: w.Holder, Path: p, Advisory: w.Advisory, Since: w.Since}, Waits: true}
			}
		}
	}
	return nil
}

// grant adds the locks of a request. Nothing is in its way.
func (t *Table) grant(w Waiting, now time.Time) error {
	others := slices.DeleteFunc(slices.Clone(t.Locks), func(l Lock) bool {
		return l.Holder == w.Holder && slices.Contains(w.Paths, l.Path)
	})
	held := 0
	for _, l := range others {
		if l.Holder == w.Holder {
			held++
		}
	}
	if held+len(w.Paths) > MaxHeld || len(others)+len(w.Paths) > maxLocks {
		return errdefs.New(errdefs.Exhausted, "lock: a sandbox may have %d locks, and all of a source %d", MaxHeld, maxLocks)
	}
	for _, p := range w.Paths {
		l := Lock{Holder: w.Holder, Path: p, Advisory: w.Advisory, Since: now.UTC(), Ticket: w.Ticket}
		if w.For > 0 {
			l.Until = now.Add(w.For).UTC()
		}
		others = append(others, l)
	}
	t.Locks = others
	return nil
}

// clone returns a table that shares no list with t.
func (t *Table) clone() Table {
	c := *t
	c.Locks, c.Waiting = slices.Clone(t.Locks), slices.Clone(t.Waiting)
	return c
}

// equal reports whether two versions of a table have the same locks and requests. A ticket names
// one request.
func (t *Table) equal(other Table) bool {
	return t.Last == other.Last && slices.Equal(t.Locks, other.Locks) && slices.EqualFunc(t.Waiting, other.Waiting, func(a, b Waiting) bool {
		return a.Holder == b.Holder && a.Ticket == b.Ticket
	})
}

func (h Holder) is(other Holder) bool { return h == other }

func (h Holder) isWaiting(w Waiting) bool { return w.Holder == h }

func (h Holder) holds(l Lock) bool { return l.Holder == h }

// texts are paths in order, each once.
func texts(paths []vpath.Path) []string {
	list := make([]string, 0, len(paths))
	for _, p := range paths {
		list = append(list, p.Text())
	}
	slices.SortFunc(list, cmp.Compare[string])
	return slices.Compact(list)
}

// overlaps reports whether one of the paths is at the other one, below it or above it.
func overlaps(paths []string, other string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return isWithin(p, other) || isWithin(other, p) })
}

// isWithin reports whether a path, as text, is dir or below it. The text of the root is empty.
func isWithin(path, dir string) bool {
	return dir == "" || path == dir || len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}
