package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// controlSocket is the socket's name in the sandbox's directory.
const controlSocket = "control"

// dialTimeout bounds how long a live supervisor may take to accept; the kernel
// queues the connection, so only a stopped process takes any time at all.
const dialTimeout = 5 * time.Second

// Client talks to one live supervisor. Each call is a connection of its own.
type Client struct {
	dir string
}

// At returns a client of the supervisor of the sandbox in dir, without looking
// whether one is alive: where none is, calls fail with NotFound.
func At(dir string) *Client { return &Client{dir: dir} }

// Dial is At for a supervisor that is alive. Errors: NotFound when none is.
func Dial(ctx context.Context, dir string) (*Client, error) {
	c := At(dir)
	probe, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c, probe.Close()
}

// Reach is Dial for a supervisor that answers. Errors: NotFound; Precondition, a
// *SilentError, of one that does not.
func Reach(ctx context.Context, dir string) (*Client, error) {
	c, err := Dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	if _, err := c.Status(ctx); IsSilent(err) {
		return nil, err
	}
	return c, nil
}

// connect reaches the socket through a handle on its directory, because a
// socket's name holds 107 bytes at most (unix(7)) and a path may be longer.
func (c *Client) connect(ctx context.Context) (conn, error) {
	dir, err := os.Open(c.dir)
	if err != nil {
		return conn{}, fault.New(fault.NotFound, "sandbox: %w", err)
	}
	defer dir.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	address := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlSocket)
	uc, err := dialer.DialContext(ctx, "unix", address)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return conn{}, fault.New(fault.NotFound, "the sandbox is not running: it has no supervisor")
	case err != nil:
		return conn{}, fault.New(fault.Unavailable, "supervisor: %w", err)
	}
	return conn{uc.(*net.UnixConn)}, nil
}

// call sends one request, with descriptors, and waits for its one reply.
func (c *Client) call(ctx context.Context, r request, given ...*os.File) (reply, error) {
	cn, err := c.connect(ctx)
	if err != nil {
		return reply{}, err
	}
	defer cn.Close()
	stop := context.AfterFunc(ctx, func() { cn.Close() })
	defer stop()
	after := firstLook
	if r.Session != nil && r.Session.Timeout > 0 {
		after = r.Session.Timeout + timeoutGrace
	}
	answer, files, err := c.ask(ctx, cn, after, r, given...)
	closeAll(files...)
	if err != nil {
		return reply{}, err
	}
	if answer.Error != nil {
		return reply{}, answer.Error.err()
	}
	return answer, nil
}

// ask sends a request and waits for the first reply to it, but not for that of a
// supervisor that has been silent from after on.
func (c *Client) ask(ctx context.Context, cn conn, after time.Duration, r request, given ...*os.File) (reply, []*os.File, error) {
	g := c.guard(ctx, cn, after)
	var answer reply
	var files []*os.File
	err := cn.send(r, given...)
	if err == nil {
		files, err = cn.receive(&answer)
	}
	if err = g.end(err); err != nil && !IsSilent(err) {
		err = lost(ctx, err)
	}
	return answer, files, err
}

// lost explains a connection that ended without an answer.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.New(fault.Canceled, "supervisor: %w", ctx.Err())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return fault.New(fault.Unavailable, "the sandbox's supervisor has ended")
	}
	return fault.New(fault.Unavailable, "supervisor: %w", err)
}

// Status asks what runs.
func (c *Client) Status(ctx context.Context) (Status, error) {
	answer, err := c.call(ctx, request{Op: opStatus})
	if err != nil || answer.Status == nil {
		return Status{}, err
	}
	return *answer.Status, nil
}

// Stats asks what the sandbox uses.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	answer, err := c.call(ctx, request{Op: opStats})
	if err != nil || answer.Stats == nil {
		return Stats{}, err
	}
	return *answer.Stats, nil
}

// SetPolicy replaces the rules of the live view. It returns when no lookup is
// answered by the old rules any more.
func (c *Client) SetPolicy(ctx context.Context, rules []policy.Rule) error {
	_, err := c.call(ctx, request{Op: opPolicy, Rules: rules})
	return err
}

// Drop forgets the delta's entries that still are what versions say, so that
// the view shows the source there, and returns the paths of the others.
func (c *Client) Drop(ctx context.Context, versions []sandbox.Version) (stale []vpath.Path, err error) {
	answer, err := c.call(ctx, request{Op: opDrop, Versions: versions})
	if err != nil {
		return nil, err
	}
	return toPaths(answer.Stale)
}

// HasChanges reports whether the delta holds anything.
func (c *Client) HasChanges(ctx context.Context) (bool, error) {
	answer, err := c.call(ctx, request{Op: opDelta})
	return answer.Changed, err
}

// Renew makes the view show what the source holds at and below the paths now.
// It returns when nothing older is shown any more.
func (c *Client) Renew(ctx context.Context, paths []vpath.Path) error {
	_, err := c.call(ctx, request{Op: opRenew, Paths: toBytes(paths)})
	return err
}

// Join has the supervisor stay, also without a command, until what it returns
// is closed. Errors: Unavailable when it is ending already.
func (c *Client) Join(ctx context.Context) (io.Closer, error) {
	cn, err := c.connect(ctx)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.Unavailable, "%w", err)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { cn.Close() })
	defer stop()
	if _, _, err := c.ask(ctx, cn, firstLook, request{Op: opJoin}); err != nil {
		cn.Close()
		return nil, err
	}
	return cn, nil
}

// Keep lets the supervisor stay when the last command has ended.
func (c *Client) Keep(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: opKeep})
	return err
}

// Stop ends every command and the supervisor. It returns when the supervisor
// has let go of everything, which the end of the connection tells.
func (c *Client) Stop(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: opStop})
	if fault.Is(err, fault.Unavailable) {
		return nil
	}
	return err
}

// Running is a command inside a sandbox.
type Running struct {
	PID int // on the host; 0 of what Attach and SessionStart return
	// ID names a kept command, LostBytes is how much of its output is kept no
	// longer.
	ID        string
	LostBytes int64
	// Terminal is the master of the command's terminal, nil with pipes. Wait
	// leaves it open, because output may still be unread.
	Terminal *os.File

	conn     conn
	client   *Client
	deadline time.Time // when its time-out is over by our clock; zero: it has none
	send     sync.Mutex
}

// Exec starts command. With a terminal, files must be empty; else they are the
// command's stdin, stdout and stderr, each one end of a pipe. The supervisor
// keeps its own descriptors of them; the caller closes its own.
// With Kept they are pipes with a terminal, too.
// Errors: *CommandError when the command could not be started.
func (c *Client) Exec(ctx context.Context, command Command, files ...*os.File) (*Running, error) {
	return c.start(ctx, request{Op: opExec, Exec: &command}, files)
}

// start sends a request, with descriptors, whose first reply is that a command
// runs.
func (c *Client) start(ctx context.Context, r request, files []*os.File) (*Running, error) {
	cn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	answer, received, err := c.ask(ctx, cn, firstLook, r, files...)
	switch {
	case err != nil:
	case answer.Error != nil:
		err = answer.Error.err()
	case answer.Started == nil:
		err = fault.New(fault.Internal, "supervisor: unexpected answer to exec")
	}
	if err != nil {
		closeAll(received...)
		cn.Close()
		return nil, err
	}
	running := &Running{PID: answer.Started.PID, ID: answer.Started.ID, LostBytes: answer.Started.LostBytes, conn: cn, client: c}
	if r.Exec != nil && r.Exec.Timeout > 0 {
		running.deadline = began.Add(r.Exec.Timeout)
	}
	if len(received) > 0 {
		running.Terminal = received[0]
	}
	return running, nil
}

// Signal sends a signal to the command.
func (r *Running) Signal(s unix.Signal) error {
	return r.tell(request{Op: opSignal, Signal: int(s)})
}

func (r *Running) tell(what request) error {
	r.send.Lock()
	defer r.send.Unlock()
	return r.conn.send(what)
}

// Wait returns how the command ended. Errors: Unavailable when the supervisor
// died before it did; Deadline, a *SilentError, when the time-out is over and the
// supervisor does not answer.
func (r *Running) Wait(ctx context.Context) (Exit, error) {
	defer r.conn.Close()
	stop := context.AfterFunc(ctx, func() { r.conn.Close() })
	defer stop()
	var g *guard
	if !r.deadline.IsZero() {
		g = r.client.guard(ctx, r.conn, max(0, time.Until(r.deadline))+timeoutGrace)
	}
	var answer reply
	files, err := r.conn.receive(&answer)
	closeAll(files...)
	if g != nil {
		err = g.end(err)
	}
	switch {
	case IsSilent(err):
		return Exit{}, fault.New(fault.Deadline, "the time-out is over: %w", err)
	case err != nil:
		return Exit{}, lost(ctx, err)
	case answer.Error != nil:
		return Exit{}, answer.Error.err()
	case answer.Exited == nil:
		return Exit{}, fault.New(fault.Internal, "supervisor: unexpected answer to exec")
	}
	return *answer.Exited, nil
}

// Detach leaves the command to itself. It has an effect only on a command
// started with Detached.
func (r *Running) Detach() error { return r.conn.Close() }
