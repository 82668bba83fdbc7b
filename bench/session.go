package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	openTimeout = 60 * time.Second  // from the start of a place to its first word
	workTimeout = 180 * time.Second // one workload
	endTimeout  = 10 * time.Second  // from the end of its input to its own end
)

// quietRuntime keeps the Go runtime from interrupting the timed loops: its
// preemption signals make FUSE requests return EINTR, and the loops would
// measure the repeats.
const quietRuntime = "GODEBUG=asyncpreemptoff=1"

// A session is the program running inside a place.
type session struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.ReadCloser
	dec     *json.Decoder
	errs    *tail
	release []func() error
}

// startSession starts cmd, which leads to serve inside a place, and waits until
// it is there. Close calls release in order, also when the start failed.
func startSession(ctx context.Context, cmd *exec.Cmd, release ...func() error) (*session, error) {
	s := &session{cmd: cmd, errs: &tail{}, release: release}
	err := s.start(ctx)
	if err == nil {
		return s, nil
	}
	return nil, errors.Join(err, s.Close())
}

func (s *session) start(ctx context.Context) error {
	s.cmd.Stderr = s.errs
	if s.cmd.SysProcAttr == nil {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A Ctrl-C is for the benchmark alone: it takes the places down in order.
	s.cmd.SysProcAttr.Setpgid = true
	s.cmd.WaitDelay = endTimeout
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.dec = json.NewDecoder(s.out)
	a, err := s.next(ctx, openTimeout)
	if err == nil && !a.Ready {
		err = fmt.Errorf("start %s: unexpected answer", s.cmd.Path)
	}
	return err
}

// Do returns what the workload took.
func (s *session) Do(ctx context.Context, q request) (time.Duration, error) {
	if err := json.NewEncoder(s.in).Encode(q); err != nil {
		return 0, s.explain(err)
	}
	a, err := s.next(ctx, workTimeout)
	if err != nil {
		return 0, err
	}
	if a.Error != "" {
		return 0, errors.New(a.Error)
	}
	return time.Duration(a.Nanoseconds), nil
}

func (s *session) next(ctx context.Context, within time.Duration) (reply, error) {
	type answer struct {
		reply
		error
	}
	got := make(chan answer, 1)
	go func() {
		var a answer
		a.error = s.dec.Decode(&a.reply)
		got <- a
	}()
	select {
	case a := <-got:
		return a.reply, s.explain(a.error)
	case <-ctx.Done():
		return reply{}, ctx.Err()
	case <-time.After(within):
		return reply{}, fmt.Errorf("no answer within %v", within)
	}
}

// explain adds what the place said on standard error before it went away.
func (s *session) explain(err error) error {
	if err == nil {
		return nil
	}
	if said := s.errs.String(); said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// Close ends the program by ending its input, or by force, and lets go of the
// place.
func (s *session) Close() error {
	if s.cmd.Process != nil {
		_ = s.in.Close()
		kill := time.AfterFunc(endTimeout, func() { _ = s.cmd.Process.Kill() })
		_ = s.cmd.Wait() // its result was in its answers
		kill.Stop()
	}
	var errs []error
	for _, f := range s.release {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// serveCommand is the command line that, inside a place, serves root.
func serveCommand(self, root string) []string { return []string{self, "__serve", root} }

// plainEnv is the environment of places that do not make their own.
func plainEnv(more ...string) []string {
	return append(append(os.Environ(), quietRuntime), more...)
}

// tail keeps the end of what was written, for an error text. It is safe for
// concurrent use: a place may still talk when it is asked what it said.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const tailBytes = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(p)
	if over := t.b.Len() - tailBytes; over > 0 {
		t.b.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.b.String())
}
