package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

const (
	// FirstLook is when a client that has no answer begins to ask whether the
	// supervisor lives at all, and how often it asks again.
	FirstLook = 2 * time.Second
	// lookPatience is how long the answer to that may take.
	lookPatience = time.Second
	// silentPatience is how long a supervisor may be silent that no signal has
	// stopped: the host may be busy.
	silentPatience = 10 * time.Second
	// timeoutGrace is what a command gets beyond its time-out to be ended by its
	// supervisor.
	timeoutGrace = time.Second
)

// SilentError says that a supervisor is there and does not answer.
type SilentError struct {
	Sandbox string // name of its directory
	PID     int    // 0: not known
	Stopped bool   // by a signal
}

// Error names the remedies.
func (e *SilentError) Error() string {
	end := "end it by force (the changes stay)" + e.Commands()[0].String()
	if e.Stopped {
		return fmt.Sprintf("the supervisor (process %d) does not answer, because a signal has stopped it: let it go on with kill -CONT %d, or %s", e.PID, e.PID, end)
	}
	return fmt.Sprintf("the supervisor (process %d) does not answer: %s", e.PID, end)
}

// Commands returns the command that ends the supervisor.
func (e *SilentError) Commands() []errdefs.Command {
	return []errdefs.Command{errdefs.Command("stop --force " + e.Sandbox)}
}

// IsSilent reports whether err says that a supervisor does not answer.
func IsSilent(err error) bool {
	_, ok := errors.AsType[*SilentError](err)
	return ok
}

// guard closes a connection on which no answer will come.
type guard struct {
	cancel context.CancelFunc
	done   chan struct{}
	silent atomic.Pointer[SilentError]
}

// guard looks, from after on, whether the supervisor lives that is to answer on
// cn, and closes cn if it does not.
func (c *Client) guard(ctx context.Context, cn Conn, after time.Duration) *guard {
	ctx, cancel := context.WithCancel(ctx)
	g := &guard{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		silentSince := time.Time{}
		for wait := after; ; wait = FirstLook {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			asked := time.Now()
			if c.answers(ctx) {
				silentSince = time.Time{}
				continue
			}
			if silentSince.IsZero() {
				silentSince = asked
			}
			e := c.silence(cn)
			if ctx.Err() == nil && (e.Stopped || time.Since(silentSince) > silentPatience) {
				g.silent.Store(e)
				cn.Close()
				return
			}
		}
	}()
	return g
}

// end ends the looking, and explains err if the guard is what caused it.
func (g *guard) end(err error) error {
	g.cancel()
	<-g.done
	if e := g.silent.Load(); e != nil && err != nil {
		return errdefs.New(errdefs.Precondition, "%w", e)
	}
	return err
}

// answers asks whether the supervisor lives. One that has ended, or is ending,
// counts as living: its connections end by themselves.
func (c *Client) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	cn, err := c.connect(ctx)
	if err != nil {
		return errdefs.Is(err, errdefs.NotFound)
	}
	defer cn.Close()
	_ = cn.SetDeadline(time.Now().Add(lookPatience))
	var answer Reply
	if err = cn.Send(Request{Op: OpStatus}); err == nil {
		_, err = cn.Receive(&answer)
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// silence describes the process at the other end of cn.
func (c *Client) silence(cn Conn) *SilentError {
	e := &SilentError{Sandbox: filepath.Base(c.dir)}
	raw, err := cn.SyscallConn()
	if err != nil {
		return e
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			e.PID = int(cred.Pid)
		}
	})
	e.Stopped = IsStopped(e.PID)
	return e
}

// Starts reports whether a request is to start what its client must be there for.
func (r *Request) Starts() bool {
	return r.Op == OpExec || r.Op == OpSessionExec || r.Op == OpOpenSession
}

// IsGone reports whether the other end is closed.
func (c Conn) IsGone() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var has int16
	_ = raw.Control(func(fd uintptr) { has, _ = pollfd.Wait(int(fd), unix.POLLRDHUP, 0) })
	return has&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// IsStopped reports whether a signal has stopped a process (proc(5)).
func IsStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	return bytes.HasPrefix(after, []byte("T")) || bytes.HasPrefix(after, []byte("t"))
}
