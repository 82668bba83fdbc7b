package export

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

func TestAQueueSendsAllInOrder(t *testing.T) {
	r := receive(t, http.StatusServiceUnavailable, http.StatusOK)
	q := NewQueue(NewOTLP(r.endpoint(t, OTLPPath), "1"))
	const n = 3 * maxRecords
	for i := range n {
		if err := q.Add(patience(t), record(uint64(i+1), "sb_1", i, audit.SandboxStopped{})); err != nil {
			t.Fatal(err)
		}
	}
	report, err := q.Close(patience(t), time.Minute, func(ctx context.Context) error {
		return q.Add(ctx, record(n+1, "sb_1", n, audit.SandboxDestroyed{}))
	})
	if err != nil || report.Sent != n+1 || report.Dropped != 0 || report.Err != nil {
		t.Fatalf("report: %+v, %v", report, err)
	}
	bodies := r.all()
	if !bytes.Equal(bodies[0], bodies[1]) {
		t.Error("what was not taken was not sent again")
	}
	whole := bytes.Join(bodies[1:], nil)
	if got := bytes.Count(whole, []byte(`"eventName"`)); got != n+1 {
		t.Errorf("%d records arrived, want %d", got, n+1)
	}
}

func nothing(context.Context) error { return nil }

func TestAQueueHoldsUpNobodyForEver(t *testing.T) {
	r := receive(t, http.StatusServiceUnavailable)
	q := NewQueue(NewOTLP(r.endpoint(t, OTLPPath), "1"))
	added := 0
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // once the receiver was asked, it is down
		for len(r.all()) == 0 {
			<-wait(t)
		}
		cancel()
	}()
	for {
		if err := q.Add(ctx, record(1, "sb_1", 0, audit.SandboxStopped{})); err != nil {
			if !errdefs.Is(err, errdefs.Canceled) {
				t.Fatal(err)
			}
			break
		}
		added++
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	report, err := q.Close(over, time.Minute, nothing)
	if err != nil || report.Sent != 0 || report.Dropped == 0 || report.Dropped > added || !errdefs.Is(report.Err, errdefs.Unavailable) {
		t.Errorf("report: %+v of %d", report, added)
	}
	if added > 2*maxRecords {
		t.Errorf("the queue took %d records", added)
	}
}

func TestAQueueGivesUpAReceiverInTrouble(t *testing.T) {
	r := receive(t, http.StatusServiceUnavailable)
	q := NewQueue(NewOTLP(r.endpoint(t, OTLPPath), "1"))
	if err := q.Add(patience(t), record(1, "sb_1", 0, audit.SandboxStopped{})); err != nil {
		t.Fatal(err)
	}
	full := func(ctx context.Context) error { // there is always one more
		for {
			if err := q.Add(ctx, record(2, "sb_1", 0, audit.SandboxStopped{})); err != nil {
				return err
			}
		}
	}
	report, err := q.Close(patience(t), time.Millisecond, full)
	if !errdefs.Is(err, errdefs.Canceled) || report.Sent != 0 || report.Dropped == 0 {
		t.Errorf("report: %+v, %v", report, err)
	}
}
