package export

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// Bounds of a Threshold.
const (
	maxCount  = 10_000
	minWindow = time.Second
	maxWindow = 24 * time.Hour
)

// Threshold is when an alert is raised: when events of a kind happen Count times in one sandbox
// within Window. Refusals that a record counts together count as many times.
type Threshold struct {
	Event  audit.Kind
	Count  int
	Window time.Duration
}

// DefaultThresholds are those of a webhook without any.
func DefaultThresholds() []Threshold {
	return []Threshold{
		{audit.KindPermissionDenied, 100, time.Minute},
		{audit.KindNetworkDenied, 20, time.Minute},
	}
}

// String returns t as ParseThreshold reads it.
func (t Threshold) String() string { return fmt.Sprintf("%s=%d/%s", t.Event, t.Count, t.Window) }

// ParseThreshold reads EVENT=COUNT/DURATION, such as network_denied=20/1m. Errors: Invalid.
func ParseThreshold(text string) (Threshold, error) {
	event, rest, _ := strings.Cut(text, "=")
	number, duration, found := strings.Cut(rest, "/")
	t := Threshold{Event: audit.Kind(event)}
	count, err := strconv.Atoi(number)
	window, durationErr := time.ParseDuration(duration)
	switch {
	case !found || err != nil || durationErr != nil:
		return t, errdefs.New(errdefs.Invalid, "%s: want EVENT=COUNT/DURATION, such as network_denied=20/1m", vpath.Quote(text))
	case !audit.IsKind(t.Event):
		return t, errdefs.New(errdefs.Invalid, "%s: unknown event %s (docs/audit.md lists them)", vpath.Quote(text), vpath.Quote(event))
	case count < 1 || count > maxCount:
		return t, errdefs.New(errdefs.Invalid, "%s: want a count between 1 and %d", vpath.Quote(text), maxCount)
	case window < minWindow || window > maxWindow:
		return t, errdefs.New(errdefs.Invalid, "%s: want a duration between %s and %s", vpath.Quote(text), minWindow, maxWindow)
	}
	t.Count, t.Window = count, window
	return t, nil
}

// weight is how many times the event of a record happened.
func (t Threshold) weight(ev audit.Event) int {
	switch e := ev.(type) {
	case audit.PermissionDenied:
		if t.Event == e.Kind() {
			return max(e.Count, 1)
		}
	case audit.NetworkDenied:
		if t.Event == e.Kind() {
			return max(e.Count, 1)
		}
	case audit.EventsOmitted:
		return t.omitted(e)
	}
	if t.Event == ev.Kind() {
		return 1
	}
	return 0
}

// omitted is how many times the event happened of which the log keeps the count only.
func (t Threshold) omitted(e audit.EventsOmitted) int {
	var n int64
	for _, c := range e.Events {
		if c.Event == t.Event {
			n += max(c.Records, c.Count)
		}
	}
	if t.Event == e.Kind() {
		n++
	}
	return int(min(n, maxCount))
}

// window counts what happened in one sandbox lately, by the clock of its records.
type window struct {
	moments []moment // at most Threshold.Count
	total   int
	quiet   time.Time // until then no other alert is raised
	more    int       // what happened in the quiet time
}

type moment struct {
	at time.Time
	n  int
}

// add counts n times at a time, and returns the alert's count and begin if it is to be raised.
func (w *window) add(t Threshold, at time.Time, n int) (count int, since time.Time, raised bool) {
	if at.Before(w.quiet) {
		w.more += n
		return 0, time.Time{}, false
	}
	begin := at.Add(-t.Window)
	for len(w.moments) > 0 && !w.moments[0].at.After(begin) {
		w.total -= w.moments[0].n
		w.moments = w.moments[1:]
	}
	w.moments, w.total = append(w.moments, moment{at, n}), w.total+n
	if w.total < t.Count {
		return 0, time.Time{}, false
	}
	count, since = w.total+w.more, w.moments[0].at
	*w = window{quiet: at.Add(t.Window)}
	return count, since, true
}

// isOver reports whether nothing that happened counts any more at a time.
func (w *window) isOver(t Threshold, at time.Time) bool {
	last := len(w.moments) - 1
	return !at.Before(w.quiet) && (last < 0 || at.Sub(w.moments[last].at) > t.Window)
}
