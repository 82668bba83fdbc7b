package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Where the Python package is, from the repository's root.
const (
	pythonSource = "sdk/python/src"
	pythonWorks  = "sdk/python/bench.py"
)

// worker is a Python program that does a work of sdk/python/bench.py each time
// it is asked.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer
}

// said is what a work says it did; times are nanoseconds.
type said struct {
	NS       time.Duration `json:"ns"`
	FirstRun time.Duration `json:"first_run"`
	Made     time.Duration `json:"made"`
	Driven   time.Duration `json:"driven"`
	Bytes    int64         `json:"bytes"`
	Commands int           `json:"commands"`
	Errors   int           `json:"errors"`
	Said     []string      `json:"said"`
}

// endWorkPatience is how long a worker may take to clear away what it made.
const endWorkPatience = 5 * time.Minute

// python is an interpreter that finds the package in this repository, and by it
// this server.
func (b *bench) python(ctx context.Context, args ...string) (*exec.Cmd, error) {
	interpreter, err := filepath.Abs(b.Python)
	if err == nil {
		_, err = os.Stat(interpreter)
	}
	if err != nil {
		return nil, errNotHere(fmt.Sprintf("%v: make it with `scripts/python test`, or name one with --python", err))
	}
	source, err := filepath.Abs(pythonSource)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, interpreter, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AGENTFENSE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, b.homeVariable(), "AGENTFENSE_BINARY="+b.binary, "PYTHONPATH="+source)
	// Not in our process group, so that Ctrl-C is for the benchmark alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endWorkPatience
	return cmd, nil
}

// newWorker starts a worker and returns when it is ready. Close ends it.
func (b *bench) newWorker(ctx context.Context, work string, args ...string) (*worker, error) {
	cmd, err := b.python(ctx, append([]string{pythonWorks, work}, args...)...)
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd}
	cmd.Stderr = &w.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	if w.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := w.out.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("python: %s: said %q: %w", work, line, err), w.Close())
	}
	return w, nil
}

// do has the work done once.
func (w *worker) do() (said, error) {
	var s said
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		return s, err
	}
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return s, fmt.Errorf("python: %w", err)
	}
	return s, json.Unmarshal(line, &s)
}

// Close ends the worker, which clears away what it made.
func (w *worker) Close() error {
	w.in.Close()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("python: %w: %s", err, strings.TrimSpace(w.err.String()))
	}
	return nil
}

// working calls do with a worker at its work.
func (b *bench) working(ctx context.Context, work string, args []string, do func(*worker) error) error {
	w, err := b.newWorker(ctx, work, args...)
	if err != nil {
		return err
	}
	return errors.Join(do(w), w.Close())
}
