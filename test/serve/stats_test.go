package serve_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestStats(t *testing.T) {
	testenv.Cgroup(t, "memory", "cpu", "pids")
	s := start(t)
	s.statsTell(nil)
	s.statsTell(&sandboxv1.ResourceLimits{MemoryBytes: 256 << 20, PidsLimit: 100})
}

// statsTell checks what is told of a sandbox with limits.
func (s *server) statsTell(limits *sandboxv1.ResourceLimits) {
	t := s.t
	t.Helper()
	made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{
		CodebaseId: s.codebase(map[string]string{"f": "x"}), Permissions: everything, Resources: limits,
	})
	id := must(t, made, err).Id
	_, err = s.sandboxes.GetStats(t.Context(), &sandboxv1.GetStatsRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "sandbox is not running")
	started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	must(t, started, err)
	before := s.stats(id)
	if before.GetMemoryBytes() < 100<<10 || before.GetPids() < 1 || before.Execs != 0 || before.Sessions != 0 || before.DeltaInodes != 0 {
		t.Errorf("an idle sandbox has %v", before)
	}
	session, err := s.sandboxes.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SandboxId: id})
	must(t, session, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{
		SandboxId: id, Command: "cat f; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; head -c 500000 /dev/zero > g; echo; sleep 1000",
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the command has written", func() bool { return s.stats(id).DeltaBytes >= 500_000 })
	got := s.stats(id)
	if got.Execs != 1 || got.Sessions != 1 || got.GetPids() <= before.GetPids() || got.DeltaInodes != 1 || got.ViewRequests["lookup"] == 0 {
		t.Errorf("a busy sandbox has %v", got)
	}
	if spent := got.CpuTime.AsDuration() - before.CpuTime.AsDuration(); spent.Milliseconds() < 10 {
		t.Errorf("a loop took %s", spent)
	}
	if limits != nil && got.GetMemoryPeakBytes() < before.GetMemoryBytes() {
		t.Errorf("the peak is %d", got.GetMemoryPeakBytes())
	}
	empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
	must(t, empty, err)
	_, err = s.sandboxes.GetStats(t.Context(), &sandboxv1.GetStatsRequest{SandboxId: id})
	wantCode(t, err, codes.NotFound)
}

func (s *server) stats(id string) *sandboxv1.Stats {
	s.t.Helper()
	got, err := s.sandboxes.GetStats(s.t.Context(), &sandboxv1.GetStatsRequest{SandboxId: id})
	return must(s.t, got, err)
}
