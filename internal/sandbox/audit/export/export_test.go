package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is when the records of tests begin.
var start = time.Date(2026, 11, 23, 9, 0, 0, 123456789, time.UTC)

// record makes the record of an event, seconds after start.
func record(seq uint64, id string, seconds int, ev audit.Event) audit.Record {
	body, err := json.Marshal(ev)
	if err != nil {
		panic(err)
	}
	raw := fmt.Appendf(nil, `{"seq":%d,"id":%q,"event":%q`, seq, id, ev.Kind())
	if string(body) != "{}" {
		raw = append(append(raw, ','), body[1:len(body)-1]...)
	}
	raw = append(raw, '}')
	return audit.Record{
		Version: 1, Seq: seq, Time: start.Add(time.Duration(seconds) * time.Second),
		Sandbox: "fix", ID: audit.Text(id), Event: ev, Raw: raw,
	}
}

// receiver is a server that keeps what is posted, and answers with the statuses in turn, the last
// of them for ever.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	bodies   [][]byte
	header   http.Header
	path     string
	statuses []int
	answer   string
}

func receive(t *testing.T, statuses ...int) *receiver {
	t.Helper()
	r := &receiver{statuses: statuses, answer: "{}"}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies, r.header, r.path = append(r.bodies, body), q.Header, q.URL.Path
	status := http.StatusOK
	if len(r.statuses) > 0 {
		status = r.statuses[0]
		if len(r.statuses) > 1 {
			r.statuses = r.statuses[1:]
		}
	}
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, r.answer)
}

func (r *receiver) all() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies
}

func (r *receiver) endpoint(t *testing.T, path string) *Endpoint {
	t.Helper()
	to, err := NewEndpoint(EndpointOptions{URL: r.URL, Header: http.Header{"Authorization": {"Bearer s3cret"}}}, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(to.Close)
	return to
}

// patience is how long a test waits for what must happen.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
