package attack_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A program that floods the log, while the collector takes nothing and never answers, is slowed
// and stopped by neither. The log is whole, its budget holds, and what was not sent is counted.
func TestAFloodAndADeadCollectorLoseNoRecord(t *testing.T) {
	t.Setenv("AGENTFENSE_AUDIT_MAX_BYTES_PER_SANDBOX", fmt.Sprint(floodBudget))
	s := harness.New(t, binary, nil)
	s.Write("closed/keep", "")
	silent := silentReceiver(t)
	const names = 900
	r := s.RunProgram(floodNames, []string{fmt.Sprint(names)},
		"--preset", "full-access", "--read", "closed/", "--write", "closed/open",
		"--otlp", silent, "--alert-webhook", silent+"/hook", "--alert-when", "permission_denied=1/1s")
	wantCode(t, r, 0)
	if !strings.Contains(r.Stderr, "--otlp: ") || !strings.Contains(r.Stderr, " not sent: post to 127.0.0.1") {
		t.Errorf("what was not sent is not told:\n%s", r.Stderr)
	}
	log := readAudit(t, s)
	if log.told+log.counted != names || log.events["command_executed"] != 1 {
		t.Errorf("%d refusals told and %d counted, want %d in all; %d commands", log.told, log.counted, names, log.events["command_executed"])
	}
	agentfense(t, s, "audit", s.Name, "--verify")
	logs, err := filepath.Glob(filepath.Join(s.Home, "audit", "*.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	if info, err := os.Stat(logs[0]); err != nil || info.Size() > floodBudget {
		t.Errorf("the log has %v bytes, %v, want %d at most", info.Size(), err, floodBudget)
	}
}

// silentReceiver accepts connections, and answers nothing.
func silentReceiver(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

// All records of a flood reach a collector that takes them, the last one of a removed sandbox
// included, and a webhook gets a bounded number of alerts, which tell nothing of what was named.
func TestAFloodReachesACollectorWhole(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{".env": "s3cret\n"}, who...)
		s.Write("closed/keep", "")
		var records, destroyed, alerts atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, err := io.ReadAll(q.Body)
			switch text := string(body); {
			case err != nil:
				w.WriteHeader(http.StatusBadRequest)
			case q.URL.Path == "/hook":
				alerts.Add(1)
				if strings.Contains(text, "closed/") || !strings.Contains(text, `"event":"permission_denied"`) {
					t.Errorf("an alert: %s", text)
				}
			default:
				records.Add(int64(strings.Count(text, `"eventName"`)))
				destroyed.Add(int64(strings.Count(text, `"eventName":"agentfense.audit.sandbox_destroyed"`)))
			}
		}))
		defer server.Close()
		r := s.RunProgram(floodNames, []string{"600"}, "--rm",
			"--preset", "full-access", "--read", "closed/", "--write", "closed/open",
			"--otlp", server.URL, "--alert-webhook", server.URL+"/hook", "--alert-when", "permission_denied=10/1h")
		wantCode(t, r, 0)
		logs, err := filepath.Glob(filepath.Join(s.Home, "audit", "*.jsonl"))
		if err != nil || len(logs) != 1 {
			t.Fatalf("logs %v, %v", logs, err)
		}
		log, err := os.ReadFile(logs[0])
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(strings.Count(string(log), "\n")); records.Load() != want || destroyed.Load() != 1 {
			t.Errorf("%d records arrived, %d of them tell of the end; the log has %d\n%s", records.Load(), destroyed.Load(), want, r.Stderr)
		}
		if alerts.Load() != 1 {
			t.Errorf("%d alerts, want 1", alerts.Load())
		}
	})
}
