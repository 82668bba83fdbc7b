package harness

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
)

// Dialogue is a program inside that a test talks with, line by line, so that
// steps inside and outside follow each other in the test's order.
type Dialogue struct {
	s      *Sandbox
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// Talk starts a program of Programs inside. The test must call End.
func (s *Sandbox) Talk(name string, args []string, flags ...string) *Dialogue {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	s.t.Cleanup(cancel)
	d := &Dialogue{s: s, cmd: s.Command(ctx, s.programCommand(name, args, flags)...)}
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	d.out = bufio.NewReader(out)
	d.cmd.Stderr = &d.stderr
	if err := d.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	return d
}

// Say sends a line to the program.
func (d *Dialogue) Say(line string) {
	d.s.t.Helper()
	if _, err := io.WriteString(d.in, line+"\n"); err != nil {
		d.s.t.Fatalf("say %q: %v\n%s", line, err, d.stderr.String())
	}
}

// Hear returns the next line the program prints.
func (d *Dialogue) Hear() string {
	d.s.t.Helper()
	line, err := d.out.ReadString('\n')
	if err != nil {
		d.cmd.Wait()
		d.s.t.Fatalf("the program ended: %v\n%s", err, d.stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// Ask says a line and returns the answer.
func (d *Dialogue) Ask(line string) string {
	d.s.t.Helper()
	d.Say(line)
	return d.Hear()
}

// End lets the program read the end of its input and returns how it ended.
func (d *Dialogue) End() Result {
	d.s.t.Helper()
	d.in.Close()
	rest, err := io.ReadAll(d.out)
	if err != nil {
		d.s.t.Error(err)
	}
	d.cmd.Wait()
	return Result{Stdout: string(rest), Stderr: d.stderr.String(), Code: d.cmd.ProcessState.ExitCode()}
}
