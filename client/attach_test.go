//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// local makes a sandbox of a directory with files that the test's end removes.
func local(t *testing.T, preset string, files map[string]string) *client.Sandbox {
	t.Helper()
	leavesNothing(t)
	box, err := client.FromLocal(t.Context(), repository(t, files), client.WithPreset(preset))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return box
}

// line reads a line of a program's output.
func line(t *testing.T, from io.Reader) string {
	t.Helper()
	var text []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatalf("%v after %q", err, text)
		}
		if text = append(text, b...); b[0] == '\n' {
			return string(text)
		}
	}
}

func TestProgramIsTalkedWith(t *testing.T) {
	box := local(t, "full-access", nil)
	x, err := box.Attach(t.Context(), []string{"/bin/sh", "-c", "while read a; do echo got $a; echo also >&2; done; exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two"} {
		if _, err := io.WriteString(x.Stdin, word+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := line(t, x.Stdout); got != "got "+word+"\n" {
			t.Errorf("%q", got)
		}
	}
	x.Stdin.Close()
	r, err := x.Wait()
	if err != nil || r.ExitCode != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	if rest, err := io.ReadAll(x.Stderr); err != nil || string(rest) != "also\nalso\n" {
		t.Errorf("what was not read before the end: %q %v", rest, err)
	}
	if _, err := x.Stdin.Write([]byte("late")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("input for a program that has ended: %v", err)
	}
}

func TestProgramHasATerminal(t *testing.T) {
	box := local(t, "full-access", nil)
	x, err := box.Attach(t.Context(), []string{"/bin/sh", "-c", `trap 'stty size; exit 0' WINCH; stty size; echo ready; while :; do sleep 0.05; done`}, client.WithTerminal(24, 80))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if got := line(t, x.Stdout) + line(t, x.Stdout); got != "24 80\r\nready\r\n" {
		t.Errorf("%q", got)
	}
	x.Resize(40, 100)
	if got := line(t, x.Stdout); got != "40 100\r\n" {
		t.Errorf("%q", got)
	}
	if r, err := x.Wait(); err != nil || !r.Success() {
		t.Errorf("%+v %v", r, err)
	}
}

func TestSignalReachesTheProgram(t *testing.T) {
	box := local(t, "full-access", nil)
	var out bytes.Buffer
	x, err := box.Attach(t.Context(), []string{"/bin/sh", "-c", `trap 'echo asked; exit 7' TERM; echo up >&2; while :; do sleep 0.05; done`}, client.WithStdout(&out))
	if err != nil {
		t.Fatal(err)
	}
	line(t, x.Stderr)
	x.Signal(client.SIGTERM)
	if r, err := x.Wait(); err != nil || r.ExitCode != 7 || out.String() != "asked\n" {
		t.Errorf("%+v %v %q", r, err, out.String())
	}
	if x.Stdout != nil {
		t.Error("WithStdout, and Stdout too")
	}
}

func TestProgramEndsWithWhoAttached(t *testing.T) {
	box := local(t, "full-access", nil)
	idle := func(what string) {
		t.Helper()
		// The end of a call and that of its command are two things.
		testenv.Eventually(t, what+": the command has ended", func() bool {
			stats, err := box.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stats.Execs == 0
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	x, err := box.Attach(ctx, []string{"sleep", "600"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := x.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled context: %v", err)
	}
	idle("a canceled context")

	// Also while it writes what nobody reads.
	if x, err = box.Attach(t.Context(), []string{"cat", "/dev/zero"}); err != nil {
		t.Fatal(err)
	}
	io.ReadFull(x.Stdout, make([]byte, 1<<20))
	x.Close()
	idle("Close")

	if x, err = box.Attach(t.Context(), []string{"sleep", "600"}, client.WithTimeout(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Wait(); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("a time-out: %v", err)
	}
	idle("a time-out")

	broken := errors.New("broken")
	if x, err = box.Attach(t.Context(), []string{"cat"}, client.WithStdin(io.MultiReader(strings.NewReader("a"), failing{broken}))); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Wait(); !errors.Is(err, broken) {
		t.Errorf("input that fails: %v", err)
	}
	idle("input that fails")
	if x, err = box.Attach(t.Context(), []string{"cat", "/dev/zero"}, client.WithStdout(failing{broken})); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Wait(); !errors.Is(err, broken) {
		t.Errorf("output that fails: %v", err)
	}
	idle("output that fails")
}

// failing reads and writes nothing.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestProgramsThatAreNoneAndOthersErrors(t *testing.T) {
	box := local(t, "full-access", nil)
	x, err := box.Attach(t.Context(), []string{"no-such-program"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := x.Wait(); err != nil || r.ExitCode != 127 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := box.Attach(t.Context(), nil); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no program: %v", err)
	}
	if _, err := box.Resume(t.Context(), "nobody"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("an unknown command: %v", err)
	}
	if err := box.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Attach(t.Context(), []string{"true"}); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("a stopped sandbox: %v", err)
	}
}

func TestInputOfAnyLength(t *testing.T) {
	box := local(t, "full-access", nil)
	const size = 5 << 20
	long := io.LimitReader(zeros{}, size) // no length is known
	r, err := box.Run(t.Context(), "wc -c; echo x >&2; exit 5", client.WithStdin(long), client.WithEnv(map[string]string{"A": "b"}), client.WithWorkdir("/tmp"))
	if err != nil || string(r.Stdout) != "5242880\n" || string(r.Stderr) != "x\n" || r.ExitCode != 5 {
		t.Errorf("%+v %v", r, err)
	}
	var out bytes.Buffer
	r, err = box.ExecStream(t.Context(), "cat", &out, nil, client.WithStdin(io.LimitReader(zeros{}, size)))
	if err != nil || !r.Success() || out.Len() != size {
		t.Errorf("%+v %v, %d bytes", r, err, out.Len())
	}
	if r, err = box.Run(t.Context(), "cat", client.WithStdin(io.LimitReader(zeros{}, size))); err != nil || !r.StdoutTruncated {
		t.Errorf("%v", err)
	}
	// An input that is not read does not hold anything up.
	if r, err = box.Run(t.Context(), "exit 4", client.WithStdin(zeros{})); err != nil || r.ExitCode != 4 {
		t.Errorf("%+v %v", r, err)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestCommandsThatAreDetached(t *testing.T) {
	box := local(t, "full-access", nil)
	ctx := t.Context()
	id, err := box.ExecDetached(ctx, "echo one; echo problem >&2; until test -e go; do sleep 0.02; done; echo two; exit 6")
	if err != nil {
		t.Fatal(err)
	}
	x, err := box.Resume(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if got := line(t, x.Stdout); got != "one\n" {
		t.Errorf("%q", got)
	}
	stdout, stderr := x.Offsets()
	x.Close()
	execs, err := box.Execs(ctx)
	if err != nil || len(execs) != 1 || execs[0].ExecID != id || execs[0].ExitCode != nil || len(execs[0].Argv) != 3 {
		t.Errorf("%+v %v", execs, err)
	}
	run(t, box, "touch go")
	var out, complaints bytes.Buffer
	if x, err = box.Resume(ctx, id, client.WithOffsets(stdout, stderr), client.WithStdout(&out), client.WithStderr(&complaints)); err != nil {
		t.Fatal(err)
	}
	r, err := x.Wait()
	if err != nil || r.ExitCode != 6 || out.String() != "two\n" || complaints.String() != "problem\n" || x.LostBytes != 0 {
		t.Errorf("%+v %v %q %q", r, err, out.String(), complaints.String())
	}
	if stdout, stderr = x.Offsets(); stdout != 8 || stderr != 8 {
		t.Errorf("offsets %d, %d", stdout, stderr)
	}
	if execs, err = box.Execs(ctx); err != nil || len(execs) != 1 || execs[0].ExitCode == nil || *execs[0].ExitCode != 6 {
		t.Errorf("%+v %v", execs, err)
	}
}

func TestDetachedCommandIsEndedBySignal(t *testing.T) {
	box := local(t, "full-access", nil)
	x, err := box.Attach(t.Context(), []string{"sleep", "600"}, client.WithDetach())
	if err != nil {
		t.Fatal(err)
	}
	x.Close() // lets go of it
	if x, err = box.Resume(t.Context(), x.ExecID); err != nil {
		t.Fatal(err)
	}
	x.Signal(client.SIGKILL)
	if r, err := x.Wait(); err != nil || r.ExitCode != 128+9 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestSessionsAreFoundAndDetach(t *testing.T) {
	box := local(t, "full-access", nil)
	ctx := t.Context()
	made, err := box.Session(ctx, client.WithShell("/bin/sh"))
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := box.Sessions(ctx)
	if err != nil || len(sessions) != 1 || sessions[0].ID != made.ID || sessions[0].Status != client.SessionActive || sessions[0].SandboxID != box.ID {
		t.Errorf("%+v %v", sessions, err)
	}
	c, err := client.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, err := c.Session(ctx, made.ID)
	if err != nil || x.Shell != "/bin/sh" {
		t.Fatalf("%+v %v", x, err)
	}
	id, err := x.ExecDetached(ctx, "cd /tmp; pwd")
	if err != nil {
		t.Fatal(err)
	}
	running, err := box.Resume(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := running.Wait(); err != nil || !r.Success() {
		t.Errorf("%+v %v", r, err)
	}
	if got := line(t, running.Stdout); got != "/tmp\n" {
		t.Errorf("%q", got)
	}
	if err := made.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.Session(ctx, made.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a closed session: %v", err)
	}
}
