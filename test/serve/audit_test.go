package serve_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// TestTheAuditLogSaysWhoseASandboxIs follows one sandbox under two servers: the
// log is one chain, and each of its records names codebase and user.
func TestTheAuditLogSaysWhoseASandboxIs(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	session, err := s.sandboxes.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SandboxId: id})
	must(t, session, err)
	s.end(syscall.SIGKILL)
	s.serve()
	s.exec(id, "echo new > f")
	if _, err := s.sandboxes.DestroySession(t.Context(), &sandboxv1.DestroySessionRequest{SessionId: session.Id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(s.agentfense("audit", id, "--json")) {
		var record struct {
			Event      string `json:"event"`
			CodebaseID string `json:"codebase_id"`
			UserID     string `json:"user_id"`
			Session    string `json:"session"`
			DurationMS *int64 `json:"duration_ms"`
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		seen[record.Event]++
		if record.CodebaseID != cb || record.UserID != "me" {
			t.Errorf("a record without codebase or user: %s", line)
		}
		if record.Event == "session_closed" && (record.Session != session.Id || record.DurationMS == nil) {
			t.Errorf("the session's end: %s", line)
		}
	}
	for _, want := range []string{
		"sandbox_created", "sandbox_started", "session_created", "session_closed", "command_executed", "file_changed", "applied", "sandbox_stopped", "sandbox_destroyed",
	} {
		if seen[want] == 0 {
			t.Errorf("events %v, want %s among them", seen, want)
		}
	}
	if got := s.agentfense("audit", id, "--verify"); !strings.Contains(got, "whole") {
		t.Errorf("verification says %q", got)
	}
}
