package gateway_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

func TestExport(t *testing.T) {
	f := &fake{}
	got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1/export?format=EXPORT_FORMAT_TAR&mount=data", "")
	if got.status != 200 || got.body != "one two" || got.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%+v", got)
	}
	for name, want := range map[string]string{"Agentfense-Entries": "2", "Agentfense-Deletions": "1", "Agentfense-Left-Out": "1", "Content-Length": "7"} {
		if got := got.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	want := &sandboxv1.ExportChangesRequest{SandboxId: "sb_1", Format: sandboxv1.ExportFormat_EXPORT_FORMAT_TAR, Mount: "data"}
	if request := f.only(t).requests[0]; !proto.Equal(request, want) {
		t.Errorf("request %v, want %v", request, want)
	}
	refused := do(t, "GET", serve(t, &fake{err: status.Error(codes.ResourceExhausted, "too large")}, gateway.Options{})+"/v1/sandboxes/sb_1/export", "")
	if refused.status != 429 || !strings.Contains(refused.body, "too large") {
		t.Errorf("%+v", refused)
	}
	unknown := do(t, "GET", serve(t, &fake{}, gateway.Options{})+"/v1/sandboxes/sb_1/export?fromat=1", "")
	if unknown.status != 400 {
		t.Errorf("%+v", unknown)
	}
}
