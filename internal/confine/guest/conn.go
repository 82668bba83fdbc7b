package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Conn is the supervisor's connection to PID 1 of one sandbox. It is safe for concurrent
// use. One goroutine reads from it until it fails or is closed; each running Exec has a
// goroutine too.
type Conn struct {
	link    link
	refused func(RefusedSocket)
	ready   chan struct{}
	quiet   unix.Errno // set before ready is closed
	done    chan struct{}
	settled chan struct{} // has a buffer of one

	settling sync.Mutex // held during a request and its answer

	mu      sync.Mutex
	err     error // why done is closed
	next    uint32
	execs   map[uint32]*Exec    // execs of which PID 1 has not reported the leader's end
	idle    *idleLeader         // the leader that waits for another command, or nil
	leaving map[uint32]struct{} // execs of former idle leaders; PID 1 will report their end
}

// NewConn takes ownership of the supervisor's end of a guest socket. It calls refused, which may be
// nil, with the sockets that programs inside tried to get, from one goroutine.
func NewConn(sock *os.File, refused func(RefusedSocket)) *Conn {
	if refused == nil {
		refused = func(RefusedSocket) {}
	}
	c := &Conn{
		refused: refused, ready: make(chan struct{}), done: make(chan struct{}), settled: make(chan struct{}, 1),
		execs: map[uint32]*Exec{}, leaving: map[uint32]struct{}{},
	}
	var err error
	if c.link, err = newLink(sock); err != nil {
		c.err = err
		close(c.done)
		return c
	}
	go c.serve()
	return c
}

// Ready waits until PID 1 runs. Errors: Unavailable, if the sandbox ended first;
// isolate.Process.Wait then returns the reason.
func (c *Conn) Ready(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return contextError(ctx, "wait for the sandbox")
	}
}

// Quiet returns why PID 1 does not learn of refused sockets, for which the kernel then answers by
// itself; nil if it does. It is known when Ready has returned.
func (c *Conn) Quiet() error {
	if c.quiet == 0 {
		return nil
	}
	return errdefs.New(errdefs.Unsupported, "seccomp notifications: %w", c.quiet)
}

// Settle returns when all refused sockets of commands that have ended are known, at the latest
// after patience, if PID 1 does not answer.
func (c *Conn) Settle(patience time.Duration) {
	if !isClosed(c.ready) || c.quiet != 0 {
		return // PID 1 starts nothing before it is ready
	}
	c.settling.Lock()
	defer c.settling.Unlock()
	select {
	case <-c.settled: // the late answer to an earlier request
	default:
	}
	if err := c.link.send(encode(msgSettle)); err != nil {
		return
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-c.settled:
	case <-c.done:
	case <-timeout.C:
	}
}

// Done is closed when the connection is unusable: the sandbox ended, it broke the protocol,
// or Close was called. Err then returns the reason.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why Done is closed, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection. PID 1 then exits, which ends all processes of the sandbox.
func (c *Conn) Close() error {
	c.fail(errdefs.New(errdefs.Unavailable, "sandbox: connection closed"))
	return nil
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.link.file.Close()
	close(c.done)
	for _, x := range c.execs {
		x.link.file.SetReadDeadline(time.Now().Add(endTimeout))
	}
	if c.idle != nil {
		c.idle.close()
		c.idle = nil
	}
}

// serve handles the messages of PID 1.
func (c *Conn) serve() {
	for {
		r, err := c.link.receive()
		if err == nil {
			err = c.handle(r.message)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
			c.fail(errdefs.New(errdefs.Unavailable, "sandbox: ended"))
			return
		default:
			c.fail(errdefs.New(errdefs.Internal, "sandbox: message from PID 1: %w", err))
			return
		}
	}
}

func (c *Conn) handle(message []byte) error {
	switch kindOf(message) {
	case msgReady:
		fields, err := decode(message, msgReady, 1)
		if err != nil || isClosed(c.ready) {
			return errProtocol
		}
		c.quiet = unix.Errno(fields[0])
		close(c.ready)
		return nil
	case msgAttempt:
		r, err := decodeAttempt(message)
		if err == nil {
			c.refused(r)
		}
		return err
	case msgSettled:
		if _, err := decode(message, msgSettled, 0); err != nil {
			return err
		}
		select {
		case c.settled <- struct{}{}:
		default:
		}
		return nil
	case msgEnded:
		fields, err := decode(message, msgEnded, 1)
		if err != nil {
			return err
		}
		return c.ended(fields[0], nil)
	case msgRefuse:
		fields, err := decode(message, msgRefuse, 2)
		if err != nil {
			return err
		}
		return c.ended(fields[0], startError("start a process", unix.Errno(fields[1])))
	}
	return errProtocol
}

// ended records that no process of an exec is left.
func (c *Conn) ended(id uint32, refused error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.execs[id]
	if x == nil {
		return c.idleEndedLocked(id)
	}
	delete(c.execs, id)
	x.refused = refused
	close(x.ended)
	x.link.file.SetReadDeadline(time.Now().Add(endTimeout))
	return nil
}

// register gives x its id.
func (c *Conn) register(x *Exec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for c.isTakenLocked(c.next) {
		c.next++
	}
	x.id = c.next
	c.next++
	c.execs[x.id] = x
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// startError is the error for a step that the kernel refused.
func startError(what string, errno unix.Errno) error {
	if errno == unix.EAGAIN || errno == unix.ENOMEM {
		return errdefs.New(errdefs.Exhausted, "%s: %w; the sandbox may be at its limit of processes or memory", what, errno)
	}
	return errdefs.New(errdefs.Internal, "%s: %w", what, errno)
}

func contextError(ctx context.Context, what string) error {
	kind := errdefs.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = errdefs.Deadline
	}
	return errdefs.New(kind, "%s: %w", what, fmt.Errorf("gave up: %w", ctx.Err()))
}
