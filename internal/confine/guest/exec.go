package guest

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// Exec is a started command, with all its descendants.
type Exec struct {
	conn   *Conn
	id     uint32
	link   link
	pid    int
	leader *os.File // pidfd
	hello  received // its ids are the leader's
	reuse  bool     // the leader may run another command

	mu       sync.RWMutex
	released bool // the leader is idle and no longer belongs to this exec

	asking  sync.Mutex  // held during a request and its answer
	answers chan answer // has a buffer of one

	ended   chan struct{} // closed when PID 1 has reported that no process is left
	refused error         // why PID 1 started no leader; set before ended is closed
	exited  chan struct{}
	exit    Exit  // set before exited is closed
	err     error // instead of exit
	done    chan struct{}
}

// Exec starts a command. Before the command runs, Exec calls placed (which may be nil) with
// the host pid of the leader, its future ancestor. An error of placed ends the exec. ctx
// limits only the start.
//
// Errors: those wrapping ErrNotFound (NotFound), ErrNotExecutable (Denied) and ErrDirectory
// (Invalid); Invalid for a malformed command or a stream that is not a pipe; Exhausted, if
// the sandbox is at its limit of processes; Unavailable, if it has ended; Deadline,
// Canceled; and the error of placed.
func (c *Conn) Exec(ctx context.Context, command Command, placed func(hostPID int) error) (*Exec, error) {
	if err := command.check(); err != nil {
		return nil, err
	}
	payload := encodeCommand(command)
	if len(payload) > maxPayload {
		return nil, errdefs.New(errdefs.Invalid, "exec %q: %w", command.Argv[0], unix.E2BIG)
	}
	x := c.wake(command)
	if x == nil {
		x = c.newExec(command)
		if err := c.spawn(x, command.Files); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { x.link.file.SetReadDeadline(time.Unix(1, 0)) })
	err := x.begin(command, payload, placed)
	if !stop() {
		err = contextError(ctx, "exec")
	}
	if err != nil {
		x.Kill()
		x.close()
		return nil, err
	}
	go x.watch()
	return x, nil
}

func (c *Conn) newExec(command Command) *Exec {
	return &Exec{
		conn: c, reuse: command.ReuseLeader, ended: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
		answers: make(chan answer, 1),
	}
}

// streams returns the descriptors of the streams that are not nil, and a bit mask of which
// they are.
func streams(files [3]*os.File) (passed []*os.File, which byte, err error) {
	for i, f := range files {
		if f == nil {
			continue
		}
		// Ends of os.Pipe are non-blocking, which commands do not expect.
		control(f, func(fd int) { err = unix.SetNonblock(fd, false) })
		if err != nil {
			return nil, 0, errdefs.New(errdefs.Internal, "exec: stream: %w", err)
		}
		passed, which = append(passed, f), which|1<<i
	}
	return passed, which, nil
}

// spawn makes PID 1 start a leader that has the other end of x's link.
func (c *Conn) spawn(x *Exec, files [3]*os.File) error {
	ours, theirs, err := Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	if x.link, err = newLink(ours); err != nil {
		return err
	}
	passed, which, err := streams(files)
	if err == nil {
		err = c.register(x)
	}
	if err != nil {
		x.link.file.Close()
		return err
	}
	if err := c.link.send(append(encode(msgSpawn, x.id), which), append([]*os.File{theirs}, passed...)...); err != nil {
		x.link.file.Close()
		c.fail(errdefs.New(errdefs.Unavailable, "sandbox: PID 1 does not listen: %w", err))
		return c.Err()
	}
	return nil
}

// awaitHello waits for the leader.
func (x *Exec) awaitHello() error {
	hello, err := x.expect()
	if err != nil {
		return err
	}
	if _, err := decode(hello.message, msgHello, 0); err != nil {
		return errdefs.New(errdefs.Internal, "exec: leader: %w", err)
	}
	x.hello = hello
	if x.leader != nil {
		return nil // the leader was reused
	}
	return x.identify(hello.pid)
}

// begin waits for the leader and makes it start the command.
func (x *Exec) begin(command Command, payload []byte, placed func(int) error) error {
	if x.leader == nil {
		if err := x.awaitHello(); err != nil {
			return err
		}
	}
	if err := chownPipes(command.Files, x.hello); err != nil {
		return err
	}
	if placed != nil {
		if err := placed(x.pid); err != nil {
			return err
		}
	}
	for len(payload) >= pieceBytes {
		if err := x.link.send(append(encode(msgCommand), payload[:pieceBytes]...)); err != nil {
			return errdefs.New(errdefs.Unavailable, "exec: leader does not listen: %w", err)
		}
		payload = payload[pieceBytes:]
	}
	if err := x.link.send(append(encode(msgCommand), payload...)); err != nil {
		return errdefs.New(errdefs.Unavailable, "exec: leader does not listen: %w", err)
	}
	answer, err := x.expect()
	if err != nil {
		return err
	}
	return checkStarted(answer.message, command)
}

// expect returns the leader's next message. If the leader has ended, it waits for PID 1's
// reason.
func (x *Exec) expect() (received, error) {
	r, err := x.link.receive()
	if err == nil && (r.pid <= 0 || x.pid != 0 && r.pid != x.pid) {
		err = errProtocol
	}
	if err == nil {
		return r, nil
	}
	ranOut := errors.Is(err, os.ErrDeadlineExceeded) && !isClosed(x.ended) && !isClosed(x.conn.done)
	if ranOut || errors.Is(err, errProtocol) {
		return received{}, errdefs.New(errdefs.Internal, "exec: leader: %w", err)
	}
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	select {
	case <-x.ended:
		if x.refused != nil {
			return received{}, x.refused
		}
		return received{}, errdefs.New(errdefs.Exhausted, "exec: the leader died while it started the command; the sandbox may be at its limit of processes or memory")
	case <-x.conn.done:
		return received{}, x.conn.Err()
	case <-timeout.C:
		return received{}, errdefs.New(errdefs.Internal, "exec: lost the leader: %w", err)
	}
}

// endTimeout is how long to wait for the last messages of a process that has ended, and for
// PID 1's report of its end. Both come at once from a PID 1 that works.
const endTimeout = 2 * time.Second

// identify opens a pidfd of the leader, which has the given pid. The leader had this pid
// when it sent the message. It still has it, because its end of the link is open and no
// other process has that end.
func (x *Exec) identify(pid int) error {
	leader, err := pidfd.Open(pid)
	if err != nil {
		return errdefs.New(errdefs.Internal, "exec: pidfd of the leader: %w", err)
	}
	if x.link.hungUp() {
		leader.Close()
		return errdefs.New(errdefs.Unavailable, "exec: the leader died before the command ran")
	}
	x.pid, x.leader = pid, leader
	return nil
}

// chownPipes makes the sandbox's user the owner of the pipes. Otherwise commands could not
// reopen them (/dev/stdout).
func chownPipes(files [3]*os.File, hello received) error {
	if os.Geteuid() != 0 || hello.uid == 0 {
		return nil
	}
	for _, f := range files {
		if f == nil {
			continue
		}
		err := error(unix.EBADF)
		control(f, func(fd int) { err = unix.Fchown(fd, hello.uid, hello.gid) })
		if err != nil {
			return errdefs.New(errdefs.Internal, "exec: change the owner of a pipe: %w", err)
		}
	}
	return nil
}

// watch waits until the leader has ended or is idle.
func (x *Exec) watch() {
	reported, idle := x.readReports()
	if idle {
		x.release()
		return
	}
	var lost error
	select {
	case <-x.ended:
	case <-x.conn.done:
		lost = errdefs.New(errdefs.Unavailable, "exec: lost with the sandbox: %w", x.conn.Err())
	}
	if !reported {
		x.exit, x.err = Exit{Signal: int(unix.SIGKILL)}, lost
		close(x.exited)
	}
	x.close()
	close(x.done)
}

// readReports reads the leader's messages. It returns whether the leader reported the end
// of the command, and whether it is idle.
func (x *Exec) readReports() (reported, idle bool) {
	for {
		r, err := x.link.receive()
		switch {
		case errors.Is(err, errProtocol), err == nil && r.pid != x.pid:
			x.Kill()
			return reported, false
		case err != nil:
			return reported, false
		case x.answered(r.message):
			continue
		case reported && x.reuse && kindOf(r.message) == msgIdle:
			return true, true
		}
		exit, err := decodeExited(r.message)
		if err != nil || reported {
			x.Kill()
			return reported, false
		}
		reported = true
		x.exit = exit
		close(x.exited)
	}
}

func (x *Exec) close() {
	x.link.file.Close()
	if x.leader != nil {
		x.leader.Close()
	}
}

// HostPID returns the pid of the command's leader in our pid namespace. All
// processes of the exec descend from it.
func (x *Exec) HostPID() int { return x.pid }

// Wait waits for the command itself; its background processes may still run. If the command
// was killed together with its leader, Exit has SIGKILL.
//
// Errors: Unavailable, if the sandbox ended first; Deadline, Canceled.
func (x *Exec) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-x.exited:
		return x.exit, x.err
	case <-ctx.Done():
		return Exit{}, contextError(ctx, "wait for the command")
	}
}

// Done is closed when no process of the exec is left, or the sandbox has ended.
func (x *Exec) Done() <-chan struct{} { return x.done }

// Signal sends sig to the foreground process group of the terminal, or without a terminal
// to the command's process group. After the command's end it does nothing.
func (x *Exec) Signal(sig unix.Signal) error {
	if sig <= 0 || sig > 64 {
		return errdefs.New(errdefs.Invalid, "signal %d: no such signal", sig)
	}
	if isClosed(x.exited) {
		return nil
	}
	if err := x.tell(encode(msgSignal, uint32(sig))); err != nil && !isClosed(x.exited) {
		return errdefs.New(errdefs.Unavailable, "signal %d: leader does not listen: %w", sig, err)
	}
	return nil
}

// Kill kills the command and all its descendants, in any session or process group: it kills
// the leader, so that they become children of PID 1, which kills them. It does not wait for
// their end, see Done. If processes fork faster than they are killed, Done stays open; then
// end the sandbox.
func (x *Exec) Kill() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.leader == nil || x.released {
		return nil
	}
	if err := pidfd.Kill(x.leader); err != nil {
		return errdefs.New(errdefs.Internal, "kill the command: %w", err)
	}
	return nil
}

// tell sends a message to the leader, unless the leader no longer belongs to this exec.
func (x *Exec) tell(message []byte, files ...*os.File) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.released {
		return os.ErrClosed
	}
	return x.link.send(message, files...)
}
