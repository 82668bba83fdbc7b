package pidfd_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// sleeper starts a process that does not end by itself.
func sleeper(t *testing.T) (*exec.Cmd, *os.File) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "infinity")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	process, err := pidfd.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Close() })
	return cmd, process
}

func TestKillAndWait(t *testing.T) {
	cmd, process := sleeper(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pidfd.Wait(over, process); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait for a process that lives = %v, want Canceled", err)
	}
	if err := pidfd.Kill(process); err != nil {
		t.Errorf("Kill = %v", err)
	}
	if err := pidfd.Wait(t.Context(), process); err != nil {
		t.Errorf("Wait = %v", err)
	}
	if err := pidfd.Wait(over, process); err != nil {
		t.Errorf("Wait for a process that has ended = %v", err)
	}
	_ = cmd.Wait() // it was killed
	if err := pidfd.Signal(process, unix.SIGCONT); !errors.Is(err, unix.ESRCH) {
		t.Errorf("Signal to a process that has ended = %v, want ESRCH", err)
	}
	if err := pidfd.Kill(process); err != nil {
		t.Errorf("Kill of a process that has ended = %v", err)
	}
	if _, err := pidfd.Open(cmd.Process.Pid); !errors.Is(err, unix.ESRCH) {
		t.Errorf("Open of a pid that nothing has = %v, want ESRCH", err)
	}
}

func TestAClosedDescriptorIsAnEndedProcess(t *testing.T) {
	process, err := pidfd.Open(unix.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	process.Close()
	if err := pidfd.Kill(process); err != nil {
		t.Errorf("Kill = %v", err)
	}
	if err := pidfd.Wait(t.Context(), process); err != nil {
		t.Errorf("Wait = %v", err)
	}
}

func TestAwaitReturnsAtTheEndOfAProcess(t *testing.T) {
	cmd, process := sleeper(t)
	ended := make(chan error)
	go func() { ended <- pidfd.Await(t.Context(), process) }()
	select {
	case err := <-ended:
		t.Errorf("Await for a process that lives = %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := pidfd.Kill(process); err != nil {
		t.Errorf("Kill = %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Await = %v", err)
	}
	_ = cmd.Wait() // it was killed
	if err := pidfd.Await(t.Context(), process); err != nil {
		t.Errorf("Await for a process that has ended = %v", err)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	process, err := pidfd.Open(unix.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- pidfd.Await(ctx, process) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Await = %v, want Canceled", err)
	}
}
