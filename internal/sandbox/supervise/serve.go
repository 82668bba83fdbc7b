package supervise

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// listen makes the control socket in dir, which is reached by handle because
// a socket's name holds 107 bytes at most. A socket left by a supervisor that
// was killed is replaced; the caller holds the sandbox's lock.
func listen(dir *os.File) (*net.UnixListener, error) {
	if err := unix.Unlinkat(int(dir.Fd()), api.ControlSocket, 0); err != nil && err != unix.ENOENT {
		return nil, errdefs.New(errdefs.Internal, "control socket: %w", err)
	}
	address := &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), api.ControlSocket)}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "control socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// serve accepts connections until the listener is closed.
func (s *supervisor) serve(ctx context.Context) {
	acceptAll(s.listener, s.log, func(uc *net.UnixConn) {
		if !s.hold() {
			uc.Close() // too late: the client starts another supervisor
			return
		}
		go func() {
			defer s.release()
			defer uc.Close()
			s.handle(ctx, api.Conn{UnixConn: uc})
		}()
	})
}

// handle answers the one request of a connection.
func (s *supervisor) handle(ctx context.Context, c api.Conn) {
	var r api.Request
	files, err := c.Receive(&r)
	defer api.CloseAll(files...)
	if err != nil {
		return // a probe, or a client that died
	}
	if r.Starts() && c.IsGone() {
		return // it gave up while we could not answer
	}
	if r.Local && s.record.Served != nil {
		err := errdefs.New(errdefs.Precondition, "sandbox %s: managed by a server: name the server with --endpoint", s.record.Name)
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(err)}))
		return
	}
	if r.Op == api.OpExec || r.Op == api.OpSessionExec {
		defer s.beginAnswer()()
	}
	if s.handleLasting(ctx, c, r, files) {
		return
	}
	if r.Op == api.OpStop {
		// Told when all is let go, or by the end of this process.
		s.stop()
		<-s.gone
	}
	answer, err := s.answer(ctx, r, files)
	if err != nil {
		answer = api.Reply{Error: api.FailureOf(err)}
	}
	if err := c.Send(answer); err != nil {
		s.log.Warn("control: answer not delivered", "op", r.Op, "err", err)
	}
}

// beginAnswer counts a request that runs a command until the function that it
// returns is called.
func (s *supervisor) beginAnswer() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answering++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answering--
		s.answered.Broadcast()
	}
}

// awaitAnswers returns when every command that ran has ended, is in the audit
// log, and its client has the answer.
func (s *supervisor) awaitAnswers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.answering > 0 {
		s.answered.Wait()
	}
	return nil
}

// handleLasting handles a request whose connection outlasts its first answer; it
// is false for any other.
func (s *supervisor) handleLasting(ctx context.Context, c api.Conn, r api.Request, files []*os.File) bool {
	switch {
	case r.Op == api.OpExec && r.Exec != nil:
		s.handleExecution(ctx, c, *r.Exec, files)
	case r.Op == api.OpAttach && r.Attach != nil:
		s.handleAttach(ctx, c, *r.Attach, files)
	case r.Op == api.OpSessionExec && r.Session != nil && r.Session.Detached:
		s.handleKeptSession(ctx, c, *r.Session, files)
	case r.Op == api.OpSessionExec && r.Session != nil:
		s.handleSessionExec(ctx, c, *r.Session, files)
	case r.Op == api.OpJoin:
		s.join(c)
	case r.Op == api.OpWatch && r.Watch != nil:
		s.handleWatch(ctx, c, *r.Watch)
	case r.Op == api.OpWatchAsks:
		s.handleAskWatch(ctx, c)
	case r.Op == api.OpAsk:
		s.handleRequest(ctx, c, r.Ask)
	default:
		return s.handleLocks(ctx, c, r)
	}
	return true
}

// handleExecution runs a command on streams of ours or of the client's.
func (s *supervisor) handleExecution(ctx context.Context, c api.Conn, command api.Command, files []*os.File) {
	if command.Kept {
		s.handleKept(ctx, c, command, files)
		return
	}
	s.handleExec(ctx, c, command, files)
}

// join lets the client count as somebody who needs the sandbox for as long as
// it keeps its connection. One that comes too late gets no answer.
func (s *supervisor) join(c api.Conn) {
	s.mu.Lock()
	if s.leaving {
		s.mu.Unlock()
		return
	}
	s.joined++
	s.mu.Unlock()
	if err := c.Send(api.Reply{OK: true}); err == nil {
		var nothing api.Request
		_, _ = c.Receive(&nothing) // it returns when the client closes
	}
	s.mu.Lock()
	s.joined--
	s.mu.Unlock()
}

func (s *supervisor) answer(ctx context.Context, r api.Request, files []*os.File) (api.Reply, error) {
	switch r.Op {
	case api.OpSecrets:
		return s.giveSecrets(files)
	case api.OpStatus:
		st := s.status()
		return api.Reply{Status: &st}, nil
	case api.OpStats:
		st, err := s.stats()
		return api.Reply{Stats: &st}, err
	case api.OpExecs:
		return s.answerExecs(), nil
	case api.OpKeep:
		s.stay()
		return api.Reply{OK: true}, nil
	case api.OpPolicy:
		return api.Reply{OK: true}, s.replacePolicy(r.Rules)
	case api.OpGrants, api.OpAsks, api.OpAnswer:
		return s.answerAsks(r)
	case api.OpHosts:
		return api.Reply{OK: true}, s.takeHosts()
	case api.OpDrop:
		stale, err := s.drop(r.Mount, r.Versions)
		return api.Reply{OK: true, Stale: api.ToBytes(stale)}, err
	case api.OpLearn, api.OpUsed:
		return s.answerLearning(r.Op == api.OpLearn)
	case api.OpDelta, api.OpFreeze:
		return s.answerDelta(r.Op == api.OpFreeze)
	case api.OpRenew:
		return api.Reply{OK: true}, s.renew(r.Paths)
	case api.OpOpenSession, api.OpSessions, api.OpCloseSession:
		return s.answerSession(ctx, r)
	case api.OpStop:
		return api.Reply{OK: true}, nil
	}
	return s.answerLocks(ctx, r)
}

// renew has the view show what is new at paths of the source.
func (s *supervisor) renew(sent [][]byte) error {
	paths, err := api.ToPaths(sent)
	if err == nil {
		s.view.Invalidate(paths...)
		s.tellRenewed(paths)
	}
	return err
}

// hold counts a reason to stay: a connection, a detached command, the
// starter's lease. It is false when the supervisor is on its way out.
func (s *supervisor) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return false
	}
	s.holds++
	return true
}

// release gives one reason up. With the last one the supervisor stops, unless
// it was told to keep.
func (s *supervisor) release() {
	s.mu.Lock()
	s.holds--
	last := s.holds == 0 && !s.stays
	s.mu.Unlock()
	if last {
		s.stop()
	}
}

// stay has the supervisor stay when the last command has ended.
func (s *supervisor) stay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stays = true
}

// stop asks run to tear everything down. It may be called more than once.
func (s *supervisor) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	select {
	case <-s.stopping:
	default:
		close(s.stopping)
	}
}

// isStopping reports whether it is time to go.
func (s *supervisor) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// watchLease gives the starter's hold up when the starter has released its
// lease or has ended. It tells the starter if we stay for somebody else;
// otherwise nobody new is let in, and run tells the starter when everything is let go.
func (s *supervisor) watchLease(lease *os.File) {
	var b [1]byte
	_, _ = lease.Read(b[:]) // nothing is ever sent: this returns at the end of file
	s.mu.Lock()
	stays := len(s.execs) > 0 || s.joined > 0 || s.stays
	s.leaving = s.leaving || !stays
	s.mu.Unlock()
	if stays {
		_, _ = lease.Write([]byte{launch.Stays}) // the starter may have ended
		lease.Close()
	}
	s.release()
}

func (s *supervisor) status() api.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return api.Status{
		PID:       os.Getpid(),
		InitPID:   s.process.PID(),
		StartedAt: s.startedAt.UTC().Truncate(time.Millisecond),
		Execs:     len(s.execs),
		Keep:      s.stays,
		Enforced:  s.enforced(),
	}
}
