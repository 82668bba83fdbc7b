package export

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

const (
	alertsPerMinute = 10     // that are posted
	maxWindows      = 10_000 // sandboxes that are watched at once, for each threshold
	postTries       = 3
)

// Alerts posts to a webhook when a threshold is reached. It is a Sink; an alert that the webhook
// does not take counts as dropped.
//
// For the time of a threshold's window after an alert, the same sandbox raises no other one for
// it: what happens meanwhile is counted in the next one. All sandboxes together post ten alerts a
// minute; those beyond are counted in the next one.
type Alerts struct {
	endpoint   *Endpoint
	thresholds []Threshold
	now        func() time.Time
	pause      time.Duration // between two tries

	windows    []map[audit.Text]*window // by threshold, by the sandbox's id
	posted     []time.Time              // in the last minute
	suppressed int
}

// NewAlerts returns a sink. now is the clock, which the thresholds do not use: theirs is that of
// the records.
func NewAlerts(to *Endpoint, thresholds []Threshold, now func() time.Time) *Alerts {
	a := &Alerts{endpoint: to, thresholds: thresholds, now: now, pause: firstRetry}
	for range thresholds {
		a.windows = append(a.windows, map[audit.Text]*window{})
	}
	return a
}

// alert is the document that is posted. It has names and numbers, and nothing of what a program
// inside named: no paths, hosts or arguments.
type alert struct {
	SchemaVersion int        `json:"schema_version"`
	Type          string     `json:"type"` // "threshold_reached"
	Text          string     `json:"text"` // for people; chat services show it
	Sandbox       audit.Text `json:"sandbox"`
	ID            audit.Text `json:"id"`
	CodebaseID    audit.Text `json:"codebase_id,omitempty"`
	UserID        audit.Text `json:"user_id,omitempty"`
	Event         audit.Kind `json:"event"`
	Threshold     int        `json:"threshold"`
	WindowSeconds float64    `json:"window_seconds"`
	Count         int        `json:"count"`
	Since         string     `json:"since"`
	Until         string     `json:"until"`
	Seq           uint64     `json:"seq"`                  // of the last record that counts
	Suppressed    int        `json:"suppressed,omitempty"` // alerts that were not posted before this one
}

const alertVersion = 1

// Send counts records and posts the alerts that they raise. It does not ask to be called again
// with them.
func (a *Alerts) Send(ctx context.Context, records []audit.Record) (dropped int, err error) {
	for _, r := range records {
		for i, t := range a.thresholds {
			raised, ok := a.count(i, t, r)
			if !ok {
				continue
			}
			if postErr := a.postOrCount(ctx, raised); postErr != nil {
				dropped, err = dropped+1, postErr
			}
		}
		if _, gone := r.Event.(audit.SandboxDestroyed); gone {
			a.forget(r.ID)
		}
	}
	return dropped, err
}

func (a *Alerts) forget(id audit.Text) {
	for _, windows := range a.windows {
		delete(windows, id)
	}
}

// count counts a record. What happened before the window that ends now is history.
func (a *Alerts) count(i int, t Threshold, r audit.Record) (alert, bool) {
	n := t.weight(r.Event)
	if n == 0 || a.now().Sub(r.Time) > t.Window {
		return alert{}, false
	}
	w := a.windows[i][r.ID]
	if w == nil {
		a.makeRoom(i, t, r.Time)
		w = &window{}
		a.windows[i][r.ID] = w
	}
	count, since, raised := w.add(t, r.Time, n)
	if !raised {
		return alert{}, false
	}
	return alert{
		SchemaVersion: alertVersion, Type: "threshold_reached",
		Text:    fmt.Sprintf("agentfense: sandbox %s: %s %d times within %s", r.ID, t.Event, count, t.Window),
		Sandbox: r.Sandbox, ID: r.ID, CodebaseID: r.CodebaseID, UserID: r.UserID,
		Event: t.Event, Threshold: t.Count, WindowSeconds: t.Window.Seconds(), Count: count,
		Since: since.UTC().Format(time.RFC3339Nano), Until: r.Time.UTC().Format(time.RFC3339Nano), Seq: r.Seq,
	}, true
}

// makeRoom forgets sandboxes in which nothing happens, and if that does not help, one of them.
func (a *Alerts) makeRoom(i int, t Threshold, at time.Time) {
	if len(a.windows[i]) < maxWindows {
		return
	}
	for id, w := range a.windows[i] {
		if w.isOver(t, at) {
			delete(a.windows[i], id)
		}
	}
	for id := range a.windows[i] {
		if len(a.windows[i]) < maxWindows {
			return
		}
		delete(a.windows[i], id)
	}
}

// postOrCount posts an alert, unless too many were posted within the last minute.
func (a *Alerts) postOrCount(ctx context.Context, raised alert) error {
	now := a.now()
	for len(a.posted) > 0 && now.Sub(a.posted[0]) >= time.Minute {
		a.posted = a.posted[1:]
	}
	if len(a.posted) >= alertsPerMinute {
		a.suppressed++
		return nil
	}
	a.posted = append(a.posted, now)
	raised.Suppressed = a.suppressed
	err := a.post(ctx, raised)
	if err == nil {
		a.suppressed = 0
		return nil
	}
	a.suppressed++
	return errdefs.New(errdefs.Precondition, "alert: %w", err)
}

func (a *Alerts) post(ctx context.Context, raised alert) error {
	body, err := json.Marshal(raised)
	if err != nil {
		return errdefs.New(errdefs.Internal, "encode an alert: %w", err)
	}
	for try := 1; ; try++ {
		_, err = a.endpoint.post(ctx, body)
		if !errdefs.Is(err, errdefs.Unavailable) || try == postTries {
			return err
		}
		select {
		case <-time.After(a.pause << try):
		case <-ctx.Done():
			return err
		}
	}
}
