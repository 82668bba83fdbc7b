package harness

import (
	"context"
	"os/exec"

	"github.com/agentfense/agentfense/internal/lib/linetest"
)

// Dialogue is a program inside that a test talks with.
type Dialogue struct {
	*linetest.Dialogue
	cmd *exec.Cmd
}

// Talk starts a program of Programs inside. The test must call End.
func (s *Sandbox) Talk(name string, args []string, flags ...string) *Dialogue {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	s.t.Cleanup(cancel)
	cmd := s.Command(ctx, s.ProgramCommand(name, args, flags)...)
	return &Dialogue{linetest.Start(s.t, cmd), cmd}
}

// End lets the program read the end of its input and returns how it ended.
func (d *Dialogue) End() Result {
	stdout, stderr, _ := d.Dialogue.End() // the code says how
	return Result{Stdout: stdout, Stderr: stderr, Code: d.cmd.ProcessState.ExitCode()}
}
