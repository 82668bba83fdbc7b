package serve_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestAServerThatIsKilledLosesNothing(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	id, idle := s.sandbox(cb), s.sandbox(cb)
	stopped, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Labels: map[string]string{"k": "v"}})
	must(t, stopped, err)
	s.exec(id, "echo mark > /tmp/mark") // which only this run of the sandbox has
	stream, err := s.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: "echo half > f; echo ready; sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || string(m.Data) != "ready\n" {
		t.Fatalf("%v, %v", m, err)
	}
	s.end(syscall.SIGKILL)
	s.serve()

	for _, running := range []string{id, idle} {
		if got := s.status(running); got != sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING {
			t.Errorf("%s is %s after the restart", running, got)
		}
	}
	if got := s.exec(id, "cat /tmp/mark f"); got != "mark\nhalf\n" {
		t.Errorf("the sandbox has %q", got)
	}
	if got, err := s.download(cb, "f"); got != "half\n" || err != nil {
		t.Errorf("what was pending was not carried over: %q, %v", got, err)
	}
	list, err := s.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{CodebaseId: cb, Labels: map[string]string{"k": "v"}})
	if got := must(t, list, err).Sandboxes; len(got) != 1 || got[0].Id != stopped.Id {
		t.Errorf("labelled sandboxes %v", got)
	}
}

// signalSupervisor sends a signal to a sandbox's supervisor and returns its pid.
func (s *server) signalSupervisor(id string, signal syscall.Signal) int {
	s.t.Helper()
	inspect := s.agentfense("inspect", id)
	_, rest, _ := strings.Cut(inspect, "supervisor:")
	number, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(rest), "process "), ",")
	pid, err := strconv.Atoi(number)
	if err == nil {
		err = syscall.Kill(pid, signal)
	}
	if err != nil {
		s.t.Fatalf("%v; inspect says %s", err, inspect)
	}
	return pid
}

// killSupervisor kills a sandbox's supervisor.
func (s *server) killSupervisor(id string) {
	s.t.Helper()
	pid := s.signalSupervisor(id, 0)
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer unix.Close(process)
	if err := unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); err != nil {
		s.t.Fatal(err)
	}
	// Readable when its last thread has ended, which has the locks.
	if has, err := pollfd.Wait(process, unix.POLLIN, time.Minute); has == 0 || err != nil {
		s.t.Fatalf("the supervisor has not ended, %v", err)
	}
}

func TestASandboxWhoseSupervisorDiedIsInErrorAndStartsAgain(t *testing.T) {
	s := start(t)
	cb := s.codebase(nil)
	id := s.sandbox(cb)
	if inspect := s.agentfense("inspect", id); !strings.Contains(inspect, cb) {
		t.Errorf("inspect says %s", inspect)
	}
	s.killSupervisor(id)
	testenv.Eventually(t, "the status is an error", func() bool { return s.status(id) == sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR })
	if _, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Error(err)
	}
	s.agentfense("stop", id)
	if got := s.status(id); got != sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED {
		t.Errorf("after agentfense stop it is %s", got)
	}
}

func TestASandboxExpires(t *testing.T) {
	s := start(t)
	cb := s.codebase(nil)
	made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{
		CodebaseId: cb, Permissions: everything, ExpiresIn: durationpb.New(time.Second),
	})
	id := must(t, made, err).Id
	testenv.Eventually(t, "it is gone", func() bool {
		_, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
		return err != nil
	})
	if strings.Contains(s.agentfense("ls", "--quiet"), id) {
		t.Error("agentfense ls still shows it")
	}
}

func TestSandboxesExpireWhileNoServerRuns(t *testing.T) {
	s := start(t, "AGENTFENSE_SANDBOX_SYNC=manual")
	cb := s.codebase(map[string]string{"f": "old\n"})
	expiring := func() string {
		made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{
			CodebaseId: cb, Permissions: everything, ExpiresIn: durationpb.New(10 * time.Second),
		})
		id := must(t, made, err).Id
		started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
		must(t, started, err)
		return id
	}
	changed, unchanged := expiring(), expiring()
	s.exec(changed, "echo new > f")
	got, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: unchanged})
	at := must(t, got, err).ExpiresAt.AsTime()
	s.end(syscall.SIGKILL)
	time.Sleep(time.Until(at))
	s.serve()
	testenv.Eventually(t, "the one without changes is gone", func() bool {
		_, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: unchanged})
		return err != nil
	})
	testenv.Eventually(t, "the one with changes is stopped", func() bool {
		return s.status(changed) == sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED
	})
	if diff := s.agentfense("diff", changed, "--name-status"); diff != "M\tf\n" || s.have(cb, "f") != "old\n" {
		t.Errorf("its delta has %q, the codebase %q", diff, s.have(cb, "f"))
	}
	_, err = s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: changed})
	wantCode(t, err, codes.FailedPrecondition, "expired")
}
