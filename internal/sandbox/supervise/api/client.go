// Package api is the protocol between a supervisor and its clients, and the client.
// A connection to the control socket in the sandbox's directory carries one request.
// It ends with the connection, whichever side closes it first.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// ControlSocket is the socket's name in the sandbox's directory.
const ControlSocket = "control"

// dialTimeout bounds how long a live supervisor may take to accept; the kernel
// queues the connection, so only a stopped process takes any time at all.
const dialTimeout = 5 * time.Second

// Client talks to one live supervisor. Each call is a connection of its own.
type Client struct {
	dir   string
	local bool
}

// At returns a client of the supervisor of the sandbox in dir, without looking
// whether one is alive: where none is, calls fail with NotFound.
func At(dir string) *Client { return &Client{dir: dir} }

// LocalAt is At, and refuses a sandbox that a server manages: calls fail with Precondition.
func LocalAt(dir string) *Client { return &Client{dir: dir, local: true} }

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
func (c *Client) connect(ctx context.Context) (Conn, error) {
	dir, err := unix.Open(c.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Conn{}, errdefs.New(errdefs.NotFound, "sandbox: %w", &os.PathError{Op: "open", Path: c.dir, Err: err})
	}
	defer unix.Close(dir)
	dialer := net.Dialer{Timeout: dialTimeout}
	address := fmt.Sprintf("/proc/self/fd/%d/%s", dir, ControlSocket)
	uc, err := dialer.DialContext(ctx, "unix", address)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return Conn{}, errdefs.New(errdefs.NotFound, "the sandbox is not running: it has no supervisor")
	case err != nil:
		return Conn{}, errdefs.New(errdefs.Unavailable, "supervisor: %w", err)
	}
	return Conn{uc.(*net.UnixConn)}, nil
}

// call sends one request, with descriptors, and waits for its one reply.
func (c *Client) call(ctx context.Context, r Request, given ...*os.File) (Reply, error) {
	cn, err := c.connect(ctx)
	if err != nil {
		return Reply{}, err
	}
	defer cn.Close()
	stop := context.AfterFunc(ctx, func() { cn.Close() })
	defer stop()
	after := FirstLook
	if r.Session != nil && r.Session.Timeout > 0 {
		after = r.Session.Timeout + timeoutGrace
	}
	answer, files, err := c.ask(ctx, cn, after, r, given...)
	CloseAll(files...)
	if err != nil {
		return Reply{}, err
	}
	if answer.Error != nil {
		return Reply{}, answer.Error.Err()
	}
	return answer, nil
}

// ask sends a request and waits for the first reply to it, but not for that of a
// supervisor that has been silent from after on.
func (c *Client) ask(ctx context.Context, cn Conn, after time.Duration, r Request, given ...*os.File) (Reply, []*os.File, error) {
	r.Local = c.local
	g := c.guard(ctx, cn, after)
	var answer Reply
	var files []*os.File
	err := cn.Send(r, given...)
	if err == nil {
		files, err = cn.Receive(&answer)
	}
	if err = g.end(err); err != nil && !IsSilent(err) {
		err = lost(ctx, err)
	}
	return answer, files, err
}

// lost explains a connection that ended without an answer.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errdefs.New(errdefs.Canceled, "supervisor: %w", ctx.Err())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return errdefs.New(errdefs.Unavailable, "the sandbox's supervisor has ended")
	}
	return errdefs.New(errdefs.Unavailable, "supervisor: %w", err)
}

// Status asks what runs.
func (c *Client) Status(ctx context.Context) (Status, error) {
	answer, err := c.call(ctx, Request{Op: OpStatus})
	if err != nil || answer.Status == nil {
		return Status{}, err
	}
	return *answer.Status, nil
}

// Stats asks what the sandbox uses.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	answer, err := c.call(ctx, Request{Op: OpStats})
	if err != nil || answer.Stats == nil {
		return Stats{}, err
	}
	return *answer.Stats, nil
}

// SetPolicy replaces the rules of the live view. It returns when no lookup is
// answered by the old rules any more.
func (c *Client) SetPolicy(ctx context.Context, rules []policy.Rule) error {
	_, err := c.call(ctx, Request{Op: OpPolicy, Rules: rules})
	return err
}

// TakeHosts has the sandbox's network follow the record. It returns when no connection is
// open to a host that is no longer allowed. Errors: Precondition, if it has no network of
// named hosts.
func (c *Client) TakeHosts(ctx context.Context) error {
	_, err := c.call(ctx, Request{Op: OpHosts})
	return err
}

// TakeGrants has the live view follow the rules of the record. It returns when no lookup is
// answered by the old ones.
func (c *Client) TakeGrants(ctx context.Context) error {
	_, err := c.call(ctx, Request{Op: OpGrants})
	return err
}

// Drop forgets the entries of a delta that still are what versions say, so that the view
// shows the source there, and returns the paths of the others. mount has the delta, "" for
// the workspace.
func (c *Client) Drop(ctx context.Context, mount string, versions []changes.Version) (stale []vpath.Path, err error) {
	answer, err := c.call(ctx, Request{Op: OpDrop, Mount: mount, Versions: versions})
	if err != nil {
		return nil, err
	}
	return ToPaths(answer.Stale)
}

// DropLive returns what tells the live supervisor of a sandbox to forget entries of a delta, nil
// if the sandbox does not run. mount has the delta, "" for the workspace. Errors: those of Reach
// but NotFound. The function fails with changes.ErrStopped if the supervisor has ended since.
func DropLive(ctx context.Context, dir, mount string) (func([]changes.Version) ([]vpath.Path, error), error) {
	c, err := Reach(ctx, dir)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func(v []changes.Version) ([]vpath.Path, error) {
		stale, err := c.Drop(ctx, mount, v)
		if err == nil {
			return stale, nil
		}
		if _, now := Dial(ctx, dir); errdefs.Is(now, errdefs.NotFound) || errdefs.Is(err, errdefs.NotFound) {
			err = errdefs.New(errdefs.Precondition, "%w: try again", changes.ErrStopped)
		}
		return nil, err
	}, nil
}

// Freeze freezes the deltas and returns the frozen layers by the name of the mount, "" for the
// workspace.
func (c *Client) Freeze(ctx context.Context) (map[string]string, error) {
	answer, err := c.call(ctx, Request{Op: OpFreeze})
	return answer.Layers, err
}

// HasChanges reports whether the delta holds anything.
func (c *Client) HasChanges(ctx context.Context) (bool, error) {
	answer, err := c.call(ctx, Request{Op: OpDelta})
	return answer.Changed, err
}

// Invalidate makes the view show what the source holds at and below the paths now.
// It returns when nothing older is shown any more.
func (c *Client) Invalidate(ctx context.Context, paths []vpath.Path) error {
	_, err := c.call(ctx, Request{Op: OpRenew, Paths: ToBytes(paths)})
	return err
}

// Join has the supervisor stay, also without a command, until what it returns
// is closed. Errors: Unavailable when it is ending already.
func (c *Client) Join(ctx context.Context) (io.Closer, error) {
	cn, err := c.connect(ctx)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, errdefs.New(errdefs.Unavailable, "%w", err)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { cn.Close() })
	defer stop()
	if _, _, err := c.ask(ctx, cn, FirstLook, Request{Op: OpJoin}); err != nil {
		cn.Close()
		return nil, err
	}
	return cn, nil
}

// Pin lets the supervisor stay when the last command has ended.
func (c *Client) Pin(ctx context.Context) error {
	_, err := c.call(ctx, Request{Op: OpKeep})
	return err
}

// Stop ends every command and the supervisor. It returns when the supervisor
// has let go of everything, which the end of the connection tells.
func (c *Client) Stop(ctx context.Context) error {
	_, err := c.call(ctx, Request{Op: OpStop})
	if errdefs.Is(err, errdefs.Unavailable) {
		return nil
	}
	return err
}

// Running is a command inside a sandbox.
type Running struct {
	PID int // on the host; 0 of what Attach and SessionStart return
	// ID names a detached command, LostBytes is how much of its output is kept no
	// longer.
	ID        string
	LostBytes int64
	// Terminal is the master of the command's terminal, nil with pipes. Wait
	// leaves it open, because output may still be unread.
	Terminal *os.File

	conn     Conn
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
	return c.start(ctx, Request{Op: OpExec, Exec: &command}, files)
}

// start sends a request, with descriptors, whose first reply is that a command
// runs.
func (c *Client) start(ctx context.Context, r Request, files []*os.File) (*Running, error) {
	cn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	answer, received, err := c.ask(ctx, cn, FirstLook, r, files...)
	switch {
	case err != nil:
	case answer.Error != nil:
		err = answer.Error.Err()
	case answer.Started == nil:
		err = errdefs.New(errdefs.Internal, "supervisor: unexpected answer to exec")
	}
	if err != nil {
		CloseAll(received...)
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
	return r.tell(Request{Op: OpSignal, Signal: int(s)})
}

func (r *Running) tell(what Request) error {
	r.send.Lock()
	defer r.send.Unlock()
	return r.conn.Send(what)
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
	var answer Reply
	files, err := r.conn.Receive(&answer)
	CloseAll(files...)
	if g != nil {
		err = g.end(err)
	}
	switch {
	case IsSilent(err):
		return Exit{}, errdefs.New(errdefs.Deadline, "the time-out is over: %w", err)
	case err != nil:
		return Exit{}, lost(ctx, err)
	case answer.Error != nil:
		return Exit{}, answer.Error.Err()
	case answer.Exited == nil:
		return Exit{}, errdefs.New(errdefs.Internal, "supervisor: unexpected answer to exec")
	}
	return *answer.Exited, nil
}

// Detach leaves the command to itself. It has an effect only on a command
// started with Detached.
func (r *Running) Detach() error { return r.conn.Close() }

// Kill ends a supervisor that does not listen, and with it every command and
// the view; it returns when the process is gone. launch.Cleanup removes the rest.
// The process is the one that the kernel says made the control socket, so
// nobody else's pid can be meant. Errors: NotFound when none is alive, Denied.
func (c *Client) Kill(ctx context.Context) error {
	cn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer cn.Close()
	process, err := cn.peer()
	if err != nil {
		return errdefs.New(errdefs.Unavailable, "kill the supervisor: %w", err)
	}
	defer process.Close()
	if err := pidfd.Kill(process); err != nil {
		return errdefs.New(errdefs.Denied, "kill the supervisor: %w", err)
	}
	switch err := pidfd.Wait(ctx, process); {
	case err != nil && ctx.Err() != nil:
		return errdefs.New(errdefs.Canceled, "wait for the supervisor: %w", err)
	case err != nil:
		return errdefs.New(errdefs.Internal, "wait for the supervisor: %w", err)
	}
	return nil
}

// peer returns the process at the other end, as a pidfd.
func (c Conn) peer() (*os.File, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	control := raw.Control(func(s uintptr) {
		fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if err != nil { // before Linux 6.5
			fd, err = peerByPid(int(s))
		}
	})
	if control != nil || err != nil {
		return nil, cmp.Or(control, err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// peerByPid goes by the number. The connection outlives no peer, so a process
// that is there after the connection was seen alive is not another.
func peerByPid(socket int) (int, error) {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return -1, err
	}
	fd, err := unix.PidfdOpen(int(cred.Pid), 0)
	if err != nil {
		return -1, err
	}
	if has, err := pollfd.Wait(socket, unix.POLLRDHUP, 0); err != nil || has != 0 {
		unix.Close(fd)
		return -1, cmp.Or[error](err, unix.ESRCH)
	}
	return fd, nil
}
