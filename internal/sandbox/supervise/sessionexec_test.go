package supervise

import (
	"os"
	"testing"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/effects"
)

// TestShellRunsTheCommandsOfItsSession: while none runs a process is nobody's, as what
// the shell has started before.
func TestShellRunsTheCommandsOfItsSession(t *testing.T) {
	shell := effects.Process{PID: os.Getpid(), Started: 10}
	child := effects.Process{PID: os.Getppid(), Parent: shell.PID, Started: 20}
	sess := &session{pid: shell.PID}
	want := func(want *execution, who string, line ...effects.Process) {
		t.Helper()
		if got := sess.commandOf(line); got != want {
			t.Errorf("%s belongs to %p, want %p", who, got, want)
		}
	}
	want(nil, "a process while no command runs", child, shell)
	want(nil, "the shell while no command runs", shell)
	x := &execution{}
	sess.current = x
	sess.loan.Started = child.Started + 1
	want(x, "the shell while a command runs", shell)
	want(nil, "a process older than the command", child, shell)
	sess.loan.Started = child.Started - 1
	want(x, "a process younger than the command's start", child, shell)
}
