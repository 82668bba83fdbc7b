package audit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Budget limits the size of a log. The zero Budget has no limit.
//
// Details, which a program inside can produce without limit (refusals, changes, reached
// limits), may use three quarters of Bytes. Commands and sessions may use fifteen
// sixteenths. The rest is for other events of the sandbox. Events that do not fit are
// counted in EventsOmitted records.
type Budget struct {
	// Bytes is the largest size of the log's file.
	Bytes int64
	// OwnerBytes is the largest total size of the logs of the same owner, with the same
	// fractions; 0: no limit.
	OwnerBytes int64
	// OwnerUsed returns their total size in bytes, including this log. It is called once
	// for each MiB. It is required with OwnerBytes.
	OwnerUsed func() (int64, error)
}

// class is the part of a budget that a kind may use. A kind without a class may exceed the
// budget: CheckRoom refuses the action before its record.
type class int

const (
	always   class = iota
	repeated       // a client can repeat it without limit
	detail         // the program inside can repeat it without limit
)

var classes = map[Kind]class{
	KindPermissionDenied: detail, KindFileChanged: detail, KindResourceLimitExceeded: detail,
	KindNetworkAllowed: detail, KindNetworkDenied: detail, KindPortConnected: detail,
	KindAccessAsked: detail, KindAsksSuppressed: detail, KindAccessAnswered: repeated,
	KindLocksChanged:    detail,
	KindMessagePosted:   detail,
	KindCommandExecuted: repeated, KindSessionCreated: repeated, KindSessionClosed: repeated,
}

// room returns the size of the log up to which records of a class are written.
func (b Budget) room(c class) int64 {
	switch c {
	case detail:
		return b.Bytes - b.Bytes/4
	case repeated:
		return b.Bytes - b.Bytes/16
	}
	return b.Bytes
}

const (
	ownerStep    = 1 << 20  // bytes between two measurements of the owner's logs
	ownerMinStep = 64 << 10 // the same, when little is left
	ownerPause   = time.Minute

	// maxReservedBody is the maximum size of a record in the part that details may not use.
	maxReservedBody = 8 << 10

	firstSummary = time.Minute // between two records of what was omitted
	lastSummary  = time.Hour   // doubled up to this
	maxCounts    = 64          // counts of one such record
)

// The reasons of an EventsOmitted.
const (
	OmittedSandboxBudget = "sandbox_budget"
	OmittedOwnerBudget   = "owner_budget"
)

// EventsOmitted says how many records were not written because the log had reached its
// budget.
type EventsOmitted struct {
	Reason string         `json:"reason"`
	Since  string         `json:"since"` // when the first of them happened
	Until  string         `json:"until"` // when the last of them happened
	Events []OmittedCount `json:"events"`
}

// OmittedCount counts equal records.
type OmittedCount struct {
	Event   Kind  `json:"event"`
	Rule    Text  `json:"rule,omitempty"` // of refusals
	Records int64 `json:"records"`
	Count   int64 `json:"count,omitempty"` // of refusals: how many they represent
}

// Kind returns KindEventsOmitted.
func (EventsOmitted) Kind() Kind { return KindEventsOmitted }

// Records returns how many records were not written.
func (e EventsOmitted) Records() int64 {
	var n int64
	for _, c := range e.Events {
		n += c.Records
	}
	return n
}

// Refusals returns how many refusals of the policy the omitted records represent.
func (e EventsOmitted) Refusals() int64 { return e.count(KindPermissionDenied) }

// NetworkRefusals returns how many refusals of the network the omitted records represent.
func (e EventsOmitted) NetworkRefusals() int64 { return e.count(KindNetworkDenied) }

func (e EventsOmitted) count(of Kind) int64 {
	var n int64
	for _, c := range e.Events {
		if c.Event == of {
			n += c.Count
		}
	}
	return n
}

// tallyKey has the fields that equal refusals share.
type tallyKey struct {
	kind Kind
	rule Text
}

// tally counts the omitted records.
type tally struct {
	reason       string
	since, until time.Time
	counts       map[tallyKey]*OmittedCount
}

func (t *tally) add(e encoded, reason string) {
	if t.counts == nil {
		t.counts, t.since = map[tallyKey]*OmittedCount{}, e.time
	}
	t.reason, t.until = reason, e.time
	k := tallyKey{e.kind, e.rule}
	if _, known := t.counts[k]; !known && len(t.counts) >= maxCounts {
		k.rule = ""
	}
	c := t.counts[k]
	if c == nil {
		c = &OmittedCount{Event: k.kind, Rule: k.rule}
		t.counts[k] = c
	}
	c.Records++
	c.Count += int64(e.refusals)
}

func (t *tally) clone() tally {
	c := *t
	c.counts = maps.Clone(t.counts)
	for k, n := range c.counts {
		n := *n
		c.counts[k] = &n
	}
	return c
}

func (t *tally) event() EventsOmitted {
	ev := EventsOmitted{
		Reason: t.reason, Since: t.since.Format(timeFormat), Until: t.until.Format(timeFormat), Events: []OmittedCount{},
	}
	for _, c := range t.counts {
		ev.Events = append(ev.Events, *c)
	}
	slices.SortFunc(ev.Events, func(a, b OmittedCount) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Rule, b.Rule))
	})
	return ev
}

// allowance is the state of a Log's budget.
type allowance struct {
	omitted     tally
	nextSummary time.Time
	pause       time.Duration // until the next summary
	owner       map[class]*ownerRoom
}

// ownerRoom is how much of a class may be written.
type ownerRoom struct {
	bytes int64     // that may be written without another measurement
	asked time.Time // when the last measurement found none
}

// CheckRoom checks that the record of a coming action fits. Errors: Exhausted if the log
// has reached its budget.
func (l *Log) CheckRoom() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || l.options.Budget.Bytes == 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		return failed("stat", l.file.Name(), err)
	}
	if st.Size < l.options.Budget.Bytes {
		return nil
	}
	return errdefs.New(errdefs.Exhausted,
		"audit log of sandbox %s: it has %d bytes and its budget is %d; raise audit.max_bytes_per_sandbox, or archive it%s",
		l.options.Sandbox, st.Size, l.options.Budget.Bytes, errdefs.Command("audit "+l.options.Sandbox+" --archive FILE"))
}

// addOrCountLocked adds e to b if the budget has room for it, else counts it.
func (l *Log) addOrCountLocked(b *batch, e encoded) error {
	c := classes[e.kind]
	budget := l.options.Budget
	size := l.end + int64(len(b.data))
	if budget.Bytes > 0 && c != detail && size >= budget.room(detail) {
		var err error
		if e, err = e.shrunk(); err != nil {
			return err
		}
	}
	// The other fields take some more bytes: a log may exceed its budget by less than a
	// record.
	size += int64(len(e.body))
	reason := ""
	switch {
	case budget.Bytes > 0 && c != always && size > budget.room(c):
		reason = OmittedSandboxBudget
	case c != always && !l.ownerGrantsLocked(c, int64(len(e.body))):
		reason = OmittedOwnerBudget
	case e.kind == KindCommandExecuted: // it comes after the command's other events
		if err := l.addSummaryLocked(b); err != nil {
			return err
		}
		fallthrough
	default:
		return b.add(e)
	}
	b.ends = append(b.ends, len(b.data))
	b.omitted = append(b.omitted, omission{len(b.ends), e, reason})
	return nil
}

// omission is a counted event of a batch.
type omission struct {
	place  int // among the batch's events, from 1
	event  encoded
	reason string
}

// ownerGrantsLocked takes n bytes from the room that the owner's logs have for a class. If
// the logs cannot be measured there is no room.
func (l *Log) ownerGrantsLocked(c class, n int64) bool {
	budget := l.options.Budget
	if budget.OwnerBytes == 0 {
		return true
	}
	a := &l.allowance
	if a.owner == nil {
		a.owner = map[class]*ownerRoom{detail: {}, repeated: {}}
	}
	room := a.owner[c]
	if room.bytes < n {
		now := l.options.Now()
		if !room.asked.IsZero() && now.Sub(room.asked) < ownerPause {
			return false
		}
		used, err := budget.OwnerUsed()
		left := Budget{Bytes: budget.OwnerBytes}.room(c) - used
		if err != nil || left < n+ownerMinStep {
			room.asked = now
			return false
		}
		room.asked = time.Time{}
		room.bytes = min(ownerStep, max(ownerMinStep, left/8)) + n
	}
	room.bytes -= n
	return true
}

// shrunk returns a small form of e.
func (e encoded) shrunk() (encoded, error) {
	if e.event == nil {
		return e, nil
	}
	ev := bound(e.event, maxReservedBody/2)
	switch x := ev.(type) {
	case CommandExecuted:
		x.Dir, x.Error = short(x.Dir), short(x.Error)
		ev = x
	case SessionCreated:
		x.Shell, x.Dir = short(x.Shell), short(x.Dir)
		ev = x
	case SandboxStopped:
		x.Reason = short(x.Reason)
		ev = x
	}
	body, err := marshal(ev)
	if err != nil {
		return e, errdefs.New(errdefs.Internal, "audit %s: %w", e.kind, err)
	}
	e.body, e.event = body, nil
	return e, nil
}

// short returns t, or a placeholder if it is too long for the reserved part of a budget.
func short(t Text) Text {
	if len(t.escape()) > maxPath {
		return "(too long)"
	}
	return t
}

// addSummaryLocked adds a record of the omitted events, if there are any.
func (l *Log) addSummaryLocked(b *batch) error {
	omitted := l.pendingLocked(b, len(b.ends))
	if omitted.counts == nil {
		return nil
	}
	e, err := encode(omitted.event(), l.options.Now())
	if err != nil {
		return err
	}
	if err := b.add(e); err != nil {
		return err
	}
	b.summaries = append(b.summaries, len(b.ends))
	return nil
}

// pendingLocked returns the counts that no summary includes after the first written events
// of b.
func (l *Log) pendingLocked(b *batch, written int) tally {
	told := 0
	for _, place := range b.summaries {
		if place <= written {
			told = place
		}
	}
	var t tally
	if told == 0 {
		t = l.allowance.omitted.clone()
	}
	for _, o := range b.omitted {
		if told < o.place && o.place <= written {
			t.add(o.event, o.reason)
		}
	}
	return t
}

func (l *Log) summaryDueLocked() bool {
	return l.allowance.omitted.counts != nil && !l.options.Now().Before(l.allowance.nextSummary)
}

// settleLocked stores the counts that no summary includes after the first written events of
// b.
func (l *Log) settleLocked(b *batch, written int) {
	a := &l.allowance
	a.omitted = l.pendingLocked(b, written)
	if len(b.summaries) > 0 && b.summaries[0] <= written {
		a.pause = min(max(2*a.pause, firstSummary), lastSummary)
		a.nextSummary = l.options.Now().Add(a.pause)
	}
}
