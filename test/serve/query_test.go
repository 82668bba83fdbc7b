package serve_test

import (
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/test/harness"
)

// A query ends at its limit though one call of a function takes minutes. It ends with the server.
func TestALongQueryEnds(t *testing.T) {
	s := start(t)
	sb := s.sandbox(s.codebase(map[string]string{"f": "content\n"}))
	const oneStep = "select replace(hex(zeroblob(1900000)),'0','a') like '%'||replace(hex(zeroblob(24000)),'0','a')||'b'"
	ask := func(timeout *durationpb.Duration) error {
		_, err := sandboxv1.NewExportServiceClient(s.conn).QuerySandbox(t.Context(), &sandboxv1.QuerySandboxRequest{SandboxId: sb, Statement: oneStep, Timeout: timeout})
		return err
	}
	wantCode(t, ask(durationpb.New(5e8)), codes.DeadlineExceeded, "sql: the query takes longer than 500ms")
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		ended := make(chan error, 1)
		go func() { ended <- ask(durationpb.New(60e9)) }()
		query := harness.OpenQuery(t, s.cmd.Process.Pid)
		s.end(signal)
		query.Ends()
		if err := <-ended; err == nil {
			t.Errorf("%v: the query was answered", signal)
		}
		s.serve()
	}
}
