package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/shell"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/effects"
)

// handleSessionExec runs one command in a session for the client at c, who ends
// the command by leaving.
func (s *supervisor) handleSessionExec(ctx context.Context, c api.Conn, r api.SessionRequest, files []*os.File) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		var nothing api.Request
		unasked, _ := c.Receive(&nothing) // it returns when the client leaves, or breaks the protocol
		api.CloseAll(unasked...)
		cancel()
	}()
	exit, err := s.sessionExec(ctx, r, nil, files)
	answer := api.Reply{Exited: &exit}
	if err != nil {
		answer = api.Reply{Error: api.FailureOf(err)}
	}
	_ = c.Send(answer) // the client may have left
}

// sessionExec runs a command in a session, as x if that is not nil. It closes
// files, the ends of pipes for its output and its errors, once it has passed
// them on.
func (s *supervisor) sessionExec(ctx context.Context, r api.SessionRequest, x *execution, files []*os.File) (api.Exit, error) {
	if err := checkSessionExec(r, files); err != nil {
		return api.Exit{}, err
	}
	sess, err := s.sessions.get(r.ID)
	if err != nil {
		return api.Exit{}, err
	}
	if err := sess.enter(ctx); err != nil {
		return api.Exit{}, err
	}
	defer sess.leave()
	if x == nil {
		x = s.newExecution(api.Command{Argv: []string{string(r.Text)}, Timeout: r.Timeout})
		x.session = sess.id
	}
	x.before = s.resourceEvents()
	s.trimmer.touch()
	exit, err := sess.run(ctx, x, files)
	if err != nil {
		return api.Exit{}, err
	}
	s.auditEnd(x, &exit, false)
	s.forget(x)
	exit.Untouched = s.isUntouched()
	return exit, nil
}

// run has the shell run x on pipes of its own. It returns when the shell has
// done it, or is gone.
func (sess *session) run(ctx context.Context, x *execution, files []*os.File) (api.Exit, error) {
	text, in, err := os.Pipe()
	if err != nil {
		return api.Exit{}, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
	}
	defer api.CloseAll(text, in)
	loan, err := sess.shell.inside.GrantFDs([3]*os.File{text, files[0], files[1]})
	api.CloseAll(files...)
	if err != nil {
		return api.Exit{}, sess.lost(err)
	}
	sess.setCurrent(x, loan)
	defer sess.setCurrent(nil, guest.FDLease{})
	written := make(chan int, 1)
	go func() {
		n, _ := io.WriteString(in, x.command.Argv[0]) // cut short below, or by the shell's end
		in.Close()
		written <- n
	}()
	exit := sess.converse(ctx, x, loan)
	in.SetWriteDeadline(time.Unix(1, 0))
	begun := <-written > unreadBytes(text)
	switch {
	case exit.SessionClosed:
	case !begun && exit.Reason == api.ReasonNone:
		return api.Exit{}, errors.Join(sess.shell.inside.RevokeFDs(),
			errdefs.New(errdefs.Internal, "session %s: the shell could not open the command's pipes", sess.id))
	default:
		if err := sess.shell.inside.RevokeFDs(); err != nil {
			sess.end(audit.SessionBroken)
			exit.SessionClosed = true
		}
	}
	return exit, nil
}

// lost explains why the guest did not do what it was asked.
func (sess *session) lost(err error) error {
	if errdefs.Is(err, errdefs.Unavailable) {
		return errClosed(sess.id)
	}
	return err
}

// unreadBytes returns how much a pipe holds.
func unreadBytes(r *os.File) int {
	n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

func (sess *session) setCurrent(x *execution, loan guest.FDLease) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	sess.current, sess.loan = x, loan
}

// converse gives the command to the shell and waits for its end, the
// time-out, or the client's leaving.
func (sess *session) converse(ctx context.Context, x *execution, loan guest.FDLease) api.Exit {
	ctx, cancel := bounded(ctx, x.command.Timeout)
	defer cancel()
	defer context.AfterFunc(sess.ended, cancel)()
	held := func(stream int) string { return fmt.Sprintf("/proc/%d/fd/%d", loan.PID, stream) }
	token, err := sess.control.Run(shell.Pipes{Text: held(0), Stdout: held(1), Stderr: held(2)})
	exit := api.Exit{}
	if err == nil {
		exit.Code, err = sess.control.Answer(ctx, token)
	}
	switch {
	case err == nil:
	case errors.Is(err, shell.ErrClosed), sess.ended.Err() != nil:
		exit = sess.shellExit(ctx, x)
	case ctx.Err() == nil:
		sess.end(audit.SessionBroken)
		exit = sess.shellExit(ctx, x)
	default:
		exit = api.Exit{Signal: int(unix.SIGKILL), Reason: reasonOf(ctx)}
		if !sess.interrupt() {
			sess.end(audit.SessionStuck)
			<-sess.ended.Done()
			exit.SessionClosed = true
		}
	}
	exit.Duration = time.Since(x.begun)
	return exit
}

// bounded ends ctx after a time; 0 is none.
func bounded(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	if after == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, after)
}

// reasonOf says why a command is ended.
func reasonOf(ctx context.Context) api.Reason {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return api.ReasonTimeout
	}
	return api.ReasonStopped
}

// shellExit waits for the end of a shell that has closed its control channel,
// or of the program that it became.
func (sess *session) shellExit(ctx context.Context, x *execution) api.Exit {
	reason := api.ReasonNone
	select {
	case <-sess.ended.Done():
	case <-ctx.Done():
		if sess.ended.Err() == nil { // which ends ctx too
			reason = reasonOf(ctx)
			sess.end(audit.SessionStuck)
			<-sess.ended.Done()
		}
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	switch {
	case reason != api.ReasonNone, sess.reason == audit.SessionEnded:
	case sess.reason == audit.SessionStopped:
		reason = api.ReasonStopped
	default:
		reason = api.ReasonClosed
	}
	return api.Exit{
		Code: sess.exit.Code, Signal: sess.exit.Signal, Reason: reason, Duration: time.Since(x.begun),
		UserTime: sess.exit.UserTime, SystemTime: sess.exit.SystemTime, MaxRSSBytes: sess.exit.MaxRSSBytes,
		SessionClosed: true,
	}
}

// How long the shell may take to come back from a command that is ended: after
// its processes have got SIGINT, each time they have got SIGKILL, until the next
// of the shell's signals is tried, and in all.
const (
	gentlePatience    = 100 * time.Millisecond
	killPatience      = 50 * time.Millisecond
	signalPatience    = time.Second
	interruptPatience = 3 * time.Second
)

// interrupt ends the running command: first as Ctrl-C does, then by force, its
// processes killed and the shell interrupted until it is back. A shell that
// waits for a program goes on to the next one, as bash does, where that has
// not died of SIGINT: hence again and again. It is false when the shell cannot
// be had back: it traps SIGINT and loops, or its processes multiply.
func (sess *session) interrupt() bool {
	limit, cancel := context.WithTimeout(context.Background(), interruptPatience)
	defer cancel()
	begun, own := time.Now(), sess.control.Interrupts()
	sig, patience := unix.SIGINT, gentlePatience
	for {
		if len(own) > 1 && time.Since(begun) > signalPatience {
			own = own[1:]
		}
		if _, err := sess.shell.inside.Interrupt(own[0], sig); err != nil {
			return false
		}
		round, cancel := context.WithTimeout(limit, patience)
		err := sess.control.Sync(round)
		cancel()
		switch {
		case err == nil:
			return sess.sweep(limit)
		case !errdefs.Is(err, errdefs.Deadline), limit.Err() != nil:
			return false
		}
		sig, patience = unix.SIGKILL, killPatience
	}
}

// sweepPause is how long killed processes may take to be gone before they are
// looked for again.
const sweepPause = 2 * time.Millisecond

// sweep kills what the command has left running. The shell gets no signal any
// more: it waits for its next command, and would lose it.
func (sess *session) sweep(limit context.Context) bool {
	for {
		n, err := sess.shell.inside.Interrupt(0, unix.SIGKILL)
		if err != nil || limit.Err() != nil {
			return false
		}
		if n == 0 {
			return true
		}
		time.Sleep(sweepPause)
	}
}

// commandOf returns the command that a process below the shell's leader belongs
// to: the one that runs, unless the process is older. line is the process and
// its ancestors below the leader, the youngest first.
func (sess *session) commandOf(line []effects.Process) *execution {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.current == nil || len(line) == 0 {
		return nil
	}
	oldest := line[len(line)-1]
	if effects.PIDInside(oldest.PID) == sess.pid {
		if len(line) == 1 {
			return sess.current // the shell itself
		}
		oldest = line[len(line)-2]
	}
	switch age := int32(oldest.Started - sess.loan.Started); {
	case age > 0, age == 0 && effects.PIDInside(oldest.PID) > sess.loan.PID:
		return sess.current
	}
	return nil
}

// checkSessionExec refuses what is no command of a session.
func checkSessionExec(r api.SessionRequest, files []*os.File) error {
	switch {
	case len(files) != 2:
		return errdefs.New(errdefs.Invalid, "session: want two pipes, got %d descriptors", len(files))
	case len(r.Text) == 0:
		return errdefs.New(errdefs.Invalid, "session: no command")
	case bytes.IndexByte(r.Text, 0) >= 0:
		return errdefs.New(errdefs.Invalid, "session: the command holds a NUL")
	case r.Timeout < 0:
		return errdefs.New(errdefs.Invalid, "session: time-out %s: want a positive duration", r.Timeout)
	}
	for _, f := range files {
		if err := guest.CheckPipe(f); err != nil {
			return err
		}
	}
	return nil
}
