package supervise

import (
	"context"
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// handleKept runs one command on streams of ours for the client at c. A client
// that leaves ends the command, unless it is detached.
func (s *supervisor) handleKept(ctx context.Context, c api.Conn, command api.Command, files []*os.File) {
	startCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	caller := &clientConn{stays: command.Detached, giveUp: giveUp, ready: make(chan struct{}), over: startCtx.Done()}
	go caller.listen(c)
	x, _, err := s.begin(startCtx, command, nil)
	if err != nil {
		api.CloseAll(files...)
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(err)}))
		return
	}
	s.kept.add(x.kept)
	a := s.greet(c, caller, x.kept, files, [2]int64{}, x.inside.HostPID())
	if command.NoInput {
		x.kept.input.end()
	}
	s.conclude(x.kept, s.finish(ctx, x), nil)
	a.takeLeave(c)
}

// greet attaches the first or a later client to a command and tells it so.
func (s *supervisor) greet(c api.Conn, caller *clientConn, k *detachedCommand, files []*os.File, from [2]int64, pid int) *attachment {
	a, lost, err := k.attach(files, from)
	answer := api.Reply{Started: &api.Started{PID: pid, ID: k.x.id, LostBytes: lost}}
	if err != nil {
		answer = api.Reply{Error: api.FailureOf(err)}
	}
	if sendErr := c.Send(answer); err != nil || sendErr != nil {
		a.abandon()
	}
	caller.connect(a)
	return a
}

// conclude keeps how a command ended.
func (s *supervisor) conclude(k *detachedCommand, exit api.Exit, err error) {
	k.finish(exit, err)
	s.endLogged(k.x, exit, err)
	if !k.x.command.Detached {
		s.kept.remove(k)
	}
	s.kept.trim()
}

// takeLeave tells the client how its command ended, unless it has left before.
func (a *attachment) takeLeave(c api.Conn) {
	select {
	case <-a.k.ended:
	case <-a.gone:
		return
	}
	a.wait()
	answer := api.Reply{Exited: &a.k.exit}
	if a.k.err != nil {
		answer = api.Reply{Error: api.FailureOf(a.k.err)}
	}
	_ = c.Send(answer) // the client may have left
}

// handleAttach attaches the client at c to a command that is kept.
func (s *supervisor) handleAttach(ctx context.Context, c api.Conn, r api.AttachRequest, files []*os.File) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k, err := s.kept.get(r.ID)
	if err != nil {
		api.CloseAll(files...)
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(err)}))
		return
	}
	caller := &clientConn{stays: true, giveUp: func() {}, ready: make(chan struct{}), over: ctx.Done()}
	go caller.listen(c)
	s.greet(c, caller, k, files, r.From, 0).takeLeave(c)
}

// handleKeptSession runs a detached command of a session on streams of ours.
func (s *supervisor) handleKeptSession(ctx context.Context, c api.Conn, r api.SessionRequest, files []*os.File) {
	if err := s.sessions.check(r.ID); err != nil {
		api.CloseAll(files...)
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(err)}))
		return
	}
	x := s.newExecution(api.Command{Argv: []string{string(r.Text)}, Timeout: r.Timeout, Detached: true, Kept: true})
	x.session = r.ID
	k := &detachedCommand{x: x, ended: make(chan struct{})}
	var theirs []*os.File
	s.beginLogged(x, len(k.streams))
	for stream := range k.streams {
		ours, their, err := os.Pipe()
		if err != nil {
			api.CloseAll(append(files, theirs...)...)
			s.endLogged(x, api.Exit{}, err)
			_ = c.Send(api.Reply{Error: api.FailureOf(errdefs.New(errdefs.Exhausted, "pipe: %w", err))})
			return
		}
		theirs = append(theirs, their)
		s.copyFrom(k, stream, ours)
	}
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	caller := &clientConn{stays: true, giveUp: func() {}, ready: make(chan struct{}), over: over.Done()}
	go caller.listen(c)
	s.kept.add(k)
	a := s.greet(c, caller, k, files, [2]int64{}, 0)
	exit, err := s.sessionExec(ctx, r, x, theirs)
	api.CloseAll(theirs...)
	s.conclude(k, exit, err)
	if err != nil {
		s.kept.remove(k) // it never ran
	}
	a.takeLeave(c)
}

// answerExecs lists the detached commands.
func (s *supervisor) answerExecs() api.Reply {
	answer := api.Reply{OK: true}
	for _, k := range s.kept.list() {
		answer.Execs = append(answer.Execs, k.describe())
	}
	return answer
}
