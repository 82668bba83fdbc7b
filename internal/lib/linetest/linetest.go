// Package linetest lets a test exchange lines with another process, so that the steps of both
// happen in the test's order. For tests only.
package linetest

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// Dialogue is a process, its input and its output.
type Dialogue struct {
	In     io.WriteCloser
	Out    *bufio.Reader
	t      testing.TB
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// Start starts cmd, which does not outlive the test. It captures stderr, unless cmd redirects it.
func Start(t testing.TB, cmd *exec.Cmd) *Dialogue {
	t.Helper()
	d := &Dialogue{t: t, cmd: cmd}
	if cmd.Stderr == nil {
		cmd.Stderr = &d.stderr
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.In, d.Out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return d
}

// Say sends a line.
func (d *Dialogue) Say(line string) {
	d.t.Helper()
	if _, err := io.WriteString(d.In, line+"\n"); err != nil {
		d.t.Fatalf("say %q: %v%s", line, err, d.complaint())
	}
}

// Hear returns the next line of the output.
func (d *Dialogue) Hear() string {
	d.t.Helper()
	line, err := d.Out.ReadString('\n')
	if err != nil {
		d.t.Fatalf("heard %q, then %v%s", line, err, d.complaint())
	}
	return strings.TrimSuffix(line, "\n")
}

// Ask sends a line and returns the answer.
func (d *Dialogue) Ask(line string) string {
	d.t.Helper()
	d.Say(line)
	return d.Hear()
}

// End closes the input of the process. It returns the rest of its output, its stderr, and how it
// ended.
func (d *Dialogue) End() (stdout, stderr string, err error) {
	d.t.Helper()
	d.In.Close()
	rest, err := io.ReadAll(d.Out)
	if err != nil {
		d.t.Error(err)
	}
	err = d.cmd.Wait()
	return string(rest), d.stderr.String(), err
}

// complaint returns the process's stderr, after it has ended.
func (d *Dialogue) complaint() string {
	d.In.Close()
	_ = d.cmd.Wait()
	return "\n" + d.stderr.String()
}
