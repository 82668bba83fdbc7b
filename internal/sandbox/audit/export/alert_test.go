package export

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// wait is a moment, for looking again.
func wait(t *testing.T) <-chan time.Time {
	t.Helper()
	return time.After(time.Millisecond)
}

// alerting is a webhook with a clock that tests set.
type alerting struct {
	*Alerts
	*receiver
	clock time.Time
	seq   uint64
}

func alertsAt(t *testing.T, thresholds ...string) *alerting {
	t.Helper()
	a := &alerting{receiver: receive(t), clock: start}
	var list []Threshold
	for _, text := range thresholds {
		th, err := ParseThreshold(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, th)
	}
	a.Alerts = NewAlerts(a.receiver.endpoint(t, "/"), list, func() time.Time { return a.clock })
	a.pause = time.Microsecond
	return a
}

// happen sends one record at a time, seconds after start.
func (a *alerting) happen(t *testing.T, id string, seconds int, ev audit.Event) (int, error) {
	t.Helper()
	a.clock = start.Add(time.Duration(seconds) * time.Second)
	a.seq++
	return a.Send(patience(t), []audit.Record{record(a.seq, id, seconds, ev)})
}

// counts are those of the alerts that arrived.
func (a *alerting) counts(t *testing.T) []int {
	t.Helper()
	counts := []int{}
	for _, body := range a.all() {
		var got alert
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		counts = append(counts, got.Count)
	}
	return counts
}

var refusal = audit.NetworkDenied{Host: "s3cret.example.com", Reason: "s3cret", Count: 1}

func TestAnAlertTellsNumbersAndNoNames(t *testing.T) {
	a := alertsAt(t, "network_denied=3/1m")
	for i := range 3 {
		if _, err := a.happen(t, "sb_1", 10*i, refusal); err != nil {
			t.Fatal(err)
		}
	}
	bodies := a.all()
	if len(bodies) != 1 || strings.Contains(string(bodies[0]), "s3cret") {
		t.Fatalf("alerts: %s", bodies)
	}
	var got alert
	if err := json.Unmarshal(bodies[0], &got); err != nil {
		t.Fatal(err)
	}
	want := alert{
		SchemaVersion: 1, Type: "threshold_reached", Text: "agentfense: sandbox sb_1: network_denied 3 times within 1m0s",
		Sandbox: "fix", ID: "sb_1", Event: "network_denied", Threshold: 3, WindowSeconds: 60, Count: 3,
		Since: "2026-11-23T09:00:00.123456789Z", Until: "2026-11-23T09:00:20.123456789Z", Seq: 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alert (-want +got):\n%s", diff)
	}
}

func TestWhenAnAlertIsRaised(t *testing.T) {
	type event struct {
		seconds int
		id      string
		ev      audit.Event
	}
	many := func(n int) audit.Event { return audit.NetworkDenied{Count: n} }
	for _, c := range []struct {
		name   string
		events []event
		want   []int
	}{
		{"too few in the window", []event{{0, "a", refusal}, {30, "a", refusal}, {61, "a", refusal}, {95, "a", refusal}}, []int{}},
		{"the window moves", []event{{0, "a", refusal}, {50, "a", refusal}, {70, "a", refusal}, {80, "a", refusal}}, []int{3}},
		{"a record counts as often as it says", []event{{0, "a", many(7)}}, []int{7}},
		{"sandboxes are counted by themselves", []event{{0, "a", refusal}, {0, "b", many(2)}, {0, "a", refusal}}, []int{}},
		{"another kind does not count", []event{{0, "a", audit.PermissionDenied{Count: 9}}}, []int{}},
		{"what the log only counts counts", []event{{0, "a", audit.EventsOmitted{Events: []audit.OmittedCount{
			{Event: audit.KindNetworkDenied, Records: 2, Count: 5}, {Event: audit.KindFileChanged, Records: 50},
		}}}}, []int{5}},
		{"a quiet time follows, and is counted later", []event{{0, "a", many(3)}, {1, "a", many(100)}, {59, "a", refusal}, {61, "a", many(3)}}, []int{3, 104}},
		{"a clock that goes back", []event{{100, "a", refusal}, {90, "a", refusal}, {80, "a", refusal}}, []int{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := alertsAt(t, "network_denied=3/1m")
			for _, e := range c.events {
				if _, err := a.happen(t, e.id, e.seconds, e.ev); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(c.want, a.counts(t)); diff != "" {
				t.Errorf("alerts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHistoryRaisesNoAlert(t *testing.T) {
	a := alertsAt(t, "network_denied=1/1m")
	a.clock = start.Add(time.Hour)
	if _, err := a.Send(patience(t), []audit.Record{record(1, "a", 0, refusal)}); err != nil {
		t.Fatal(err)
	}
	if got := a.counts(t); len(got) != 0 {
		t.Errorf("alerts: %v", got)
	}
}

func TestAlertsOfAllSandboxesAreLimited(t *testing.T) {
	a := alertsAt(t, "network_denied=1/1m")
	ids := strings.Split("abcdefghijklmno", "")
	for _, id := range ids {
		if _, err := a.happen(t, id, 0, refusal); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(a.all()); got != alertsPerMinute {
		t.Fatalf("%d alerts, want %d", got, alertsPerMinute)
	}
	if _, err := a.happen(t, "z", 61, refusal); err != nil {
		t.Fatal(err)
	}
	var last alert
	if err := json.Unmarshal(a.all()[alertsPerMinute], &last); err != nil {
		t.Fatal(err)
	}
	if last.ID != "z" || last.Suppressed != len(ids)-alertsPerMinute {
		t.Errorf("the next alert: %+v", last)
	}
}

func TestAnAlertThatIsNotTakenIsCounted(t *testing.T) {
	a := alertsAt(t, "network_denied=1/1m")
	a.statuses = []int{http.StatusServiceUnavailable}
	dropped, err := a.happen(t, "a", 0, refusal)
	if dropped != 1 || err == nil || errdefs.Is(err, errdefs.Unavailable) || len(a.all()) != postTries {
		t.Fatalf("dropped %d after %d tries: %v", dropped, len(a.all()), err)
	}
	a.mu.Lock()
	a.statuses = nil
	a.mu.Unlock()
	if dropped, err := a.happen(t, "b", 1, refusal); dropped != 0 || err != nil {
		t.Fatalf("dropped %d: %v", dropped, err)
	}
	var last alert
	if err := json.Unmarshal(a.all()[postTries], &last); err != nil || last.Suppressed != 1 {
		t.Errorf("the next alert: %+v, %v", last, err)
	}
}

func TestSandboxesThatAreWatchedAreBounded(t *testing.T) {
	a := alertsAt(t, "network_denied=100/1m")
	for i := range maxWindows + 10 {
		if _, err := a.happen(t, time.Duration(i).String(), 0, refusal); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(a.windows[0]); got != maxWindows {
		t.Errorf("%d sandboxes are watched, want %d", got, maxWindows)
	}
	if _, err := a.happen(t, "x", 120, refusal); err != nil || len(a.windows[0]) != 1 {
		t.Errorf("%d sandboxes are watched after a quiet time (%v), want 1", len(a.windows[0]), err)
	}
	if _, err := a.happen(t, "x", 121, audit.SandboxDestroyed{}); err != nil || len(a.windows[0]) != 0 {
		t.Errorf("%d sandboxes are watched after the last is gone (%v)", len(a.windows[0]), err)
	}
}

func TestThresholds(t *testing.T) {
	for _, text := range []string{"network_denied=20/1m0s", "gap=1/1s", "permission_denied=10000/24h0m0s"} {
		if th, err := ParseThreshold(text); err != nil || th.String() != text {
			t.Errorf("%s: %v, %v", text, th, err)
		}
	}
	for _, text := range []string{
		"", "network_denied", "network_denied=20", "network_denied=/1m", "network_denied=0/1m", "network_denied=-1/1m",
		"network_denied=10001/1m", "network_denied=1/1ms", "network_denied=1/25h", "refused=1/1m", "malformed=1/1m", "network_denied=1/1m/1m",
	} {
		if _, err := ParseThreshold(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
