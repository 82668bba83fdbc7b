package serve_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// posts is a server that hands on what is posted to it.
func posts(t *testing.T) (url string, bodies <-chan []byte) {
	t.Helper()
	got := make(chan []byte, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("X-Scope") != "all" && r.URL.Path == "/v1/logs" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		got <- body
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// logged are the records of a body of OTLP.
func logged(t *testing.T, body []byte) (records []loggedRecord) {
	t.Helper()
	var request struct {
		ResourceLogs []struct {
			ScopeLogs []struct {
				LogRecords []struct {
					Body struct{ StringValue string }
				}
			}
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, resource := range request.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				var r loggedRecord
				if err := json.Unmarshal([]byte(record.Body.StringValue), &r); err != nil {
					t.Fatalf("%v: %s", err, record.Body.StringValue)
				}
				records = append(records, r)
			}
		}
	}
	return records
}

type loggedRecord struct {
	Seq        int    `json:"seq"`
	ID         string `json:"id"`
	Event      string `json:"event"`
	CodebaseID string `json:"codebase_id"`
}

// TestTheAuditLogsAreSent reads what a collector and a webhook get of two servers, one after the
// other, on one state directory.
func TestTheAuditLogsAreSent(t *testing.T) {
	otlp, bodies := posts(t)
	webhook, alerts := posts(t)
	header := filepath.Join(t.TempDir(), "header")
	if err := os.WriteFile(header, []byte("X-Scope: all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "AGENTFENSE_AUDIT_OTLP_URL="+otlp, "AGENTFENSE_AUDIT_OTLP_HEADER_FILE="+header,
		"AGENTFENSE_AUDIT_ALERT_WEBHOOK="+webhook+"/hook", "AGENTFENSE_AUDIT_ALERT_WHEN=permission_denied=1/1m")
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb, &sandboxv1.PermissionRule{Pattern: "**", Permission: sandboxv1.Permission_PERMISSION_READ})
	s.exec(id, "true")
	seen := 0
	until := func(event string) {
		t.Helper()
		for found := false; !found; {
			var body []byte
			select {
			case body = <-bodies:
			case <-t.Context().Done():
				t.Fatal("the test was ended")
			}
			for _, r := range logged(t, body) {
				if r.ID != id || r.CodebaseID != cb || r.Seq != seen+1 {
					t.Errorf("%+v after record %d of %s", r, seen, id)
				}
				seen = r.Seq
				found = found || r.Event == event
			}
		}
	}
	until("command_executed")

	// the next server goes on where this one ended
	s.end(syscall.SIGTERM)
	s.serve()
	s.exec(id, "touch refused || true")
	if body := string(<-alerts); !strings.Contains(body, `"event":"permission_denied"`) || strings.Contains(body, "refused") {
		t.Errorf("alert %s", body)
	}
	if _, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	until("sandbox_destroyed")
}
