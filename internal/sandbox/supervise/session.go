package supervise

import (
	"cmp"
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/shell"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// session is a shell that runs commands, one after another.
//
// It lives as long as the sandbox runs, with or without clients, until it is closed or its shell
// ends. All that it started ends with it.
type session struct {
	id        string
	idleAfter time.Duration // 0 = for ever
	shell     *execution
	control   *shell.Conn
	pid       int // of the shell, as it sees it itself

	turn  chan struct{}   // taken by whoever uses control
	ended context.Context // done when the shell and all that it started are gone
	over  chan struct{}   // closed when that stands in the audit log

	mu      sync.Mutex
	reason  string // of its end, in the audit log's words
	closed  time.Time
	exit    guest.Exit // the shell's
	idle    *time.Timer
	current *execution    // the command that runs
	loan    guest.FDLease // of current
}

// sessionTable holds a sandbox's sessions by their ids, nil while one is made.
type sessionTable struct {
	mu   sync.Mutex
	byID map[string]*session
}

// maxClosed is how many closed sessions are remembered. Nobody counts on more:
// a client that closes a session forgets it.
const maxClosed = 256

// reserve takes an id. Errors: Exists.
func (t *sessionTable) reserve(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.byID[id]; taken {
		return errdefs.New(errdefs.Exists, "session %s: exists", id)
	}
	if t.byID == nil {
		t.byID = map[string]*session{}
	}
	t.byID[id] = nil
	return nil
}

func (t *sessionTable) set(sess *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[sess.id] = sess
	var oldest *session
	closed := 0
	for _, other := range t.byID {
		if other == nil || other.describe().ClosedAt.IsZero() {
			continue
		}
		closed++
		if oldest == nil || other.describe().ClosedAt.Before(oldest.describe().ClosedAt) {
			oldest = other
		}
	}
	if closed > maxClosed {
		delete(t.byID, oldest.id)
	}
}

func (t *sessionTable) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

// get returns a session. Errors: NotFound.
func (t *sessionTable) get(id string) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sess := t.byID[id]; sess != nil {
		return sess, nil
	}
	return nil, errdefs.WithReason(errdefs.New(errdefs.NotFound, "session %s: no such session", id), errdefs.SessionNotFound)
}

// check refuses what no open session has as its id. Errors: NotFound;
// Precondition.
func (t *sessionTable) check(id string) error {
	sess, err := t.get(id)
	if err == nil && sess.ended.Err() != nil {
		err = errClosed(id)
	}
	return err
}

// list returns all sessions, the oldest first.
func (t *sessionTable) list() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.DeleteFunc(slices.Collect(maps.Values(t.byID)), func(s *session) bool { return s == nil })
	slices.SortFunc(list, func(a, b *session) int {
		return cmp.Or(a.shell.begun.Compare(b.shell.begun), cmp.Compare(a.id, b.id))
	})
	return list
}

// answerSession does what is asked about sessions, except running a command.
func (s *supervisor) answerSession(ctx context.Context, r api.Request) (api.Reply, error) {
	if r.Op == api.OpSessions {
		answer := api.Reply{OK: true}
		for _, sess := range s.sessions.list() {
			answer.Sessions = append(answer.Sessions, sess.describe())
		}
		return answer, nil
	}
	if r.Session == nil {
		return api.Reply{}, errdefs.New(errdefs.Invalid, "control: %s without a session", r.Op)
	}
	if r.Op == api.OpOpenSession {
		sess, err := s.openSession(ctx, r.Session.Options())
		if err != nil {
			return api.Reply{}, err
		}
		return api.Reply{Sessions: []api.Session{sess.describe()}}, nil
	}
	return api.Reply{OK: true}, s.closeSession(r.Session.ID)
}

var sessionID = regexp.MustCompile(`^sess_[0-9a-f]{16}$`)

// defaultShell is a session's shell where none is asked for.
const defaultShell = "/bin/sh"

// openSession makes a session.
func (s *supervisor) openSession(ctx context.Context, o api.SessionOptions) (*session, error) {
	switch {
	case !sessionID.MatchString(o.ID):
		return nil, errdefs.New(errdefs.Invalid, "session %q: want sess_ and 16 hexadecimal digits", o.ID)
	case o.IdleTimeout < 0:
		return nil, errdefs.New(errdefs.Invalid, "session %s: idle time-out %s: want a positive duration", o.ID, o.IdleTimeout)
	}
	o.Shell = cmp.Or(o.Shell, defaultShell)
	if err := s.sessions.reserve(o.ID); err != nil {
		return nil, err
	}
	sess, err := s.startSession(ctx, o)
	if err != nil {
		s.sessions.remove(o.ID)
		return nil, err
	}
	s.sessions.set(sess)
	return sess, nil
}

// greetPatience bounds how long a shell may take before its first command.
const greetPatience = 10 * time.Second

// startSession starts the shell and greets it.
func (s *supervisor) startSession(ctx context.Context, o api.SessionOptions) (*session, error) {
	if !s.hold() {
		return nil, errdefs.New(errdefs.Unavailable, "the sandbox is stopping")
	}
	sess := &session{
		id: o.ID, idleAfter: o.IdleTimeout,
		turn: make(chan struct{}, 1), over: make(chan struct{}),
	}
	sess.shell = s.newExecution(api.Command{Argv: shell.Argv(o.Shell), Env: o.Env, Dir: o.Dir})
	sess.shell.session, sess.shell.shellOf = o.ID, sess
	if err := s.launchShell(ctx, sess); err != nil {
		s.release()
		return nil, err
	}
	lasting := context.WithoutCancel(ctx) // the client may leave
	var end context.CancelFunc
	sess.ended, end = context.WithCancel(lasting)
	s.append(audit.SessionCreated{
		Session: sess.id, Exec: sess.shell.id, Shell: audit.Text(o.Shell), Dir: audit.Text(s.inner(sess.shell.command).Dir),
	})
	go s.watchSession(lasting, sess, end)
	greeting, cancel := context.WithTimeout(ctx, greetPatience)
	defer cancel()
	pid, err := sess.control.Greet(greeting)
	if err != nil {
		sess.end(audit.SessionBroken)
		<-sess.over
		return nil, errdefs.New(errdefs.Invalid, "session: %q is not a shell that keeps one: %w", o.Shell, err)
	}
	sess.mu.Lock()
	sess.pid = pid
	sess.mu.Unlock()
	sess.rest()
	return sess, nil
}

// launchShell starts the shell on a control channel.
func (s *supervisor) launchShell(ctx context.Context, sess *session) error {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return errdefs.New(errdefs.Exhausted, "pipe: %w", err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		api.CloseAll(theirIn, in)
		return errdefs.New(errdefs.Exhausted, "pipe: %w", err)
	}
	defer api.CloseAll(theirIn, theirOut)
	sess.control = shell.NewConn(in, out)
	inner := s.inner(sess.shell.command)
	inner.Files[0], inner.Files[1] = theirIn, theirOut // what it says on its own stderr is thrown away
	if err := s.launch(ctx, sess.shell, inner); err != nil {
		sess.control.Close()
		return err
	}
	return nil
}

// watchSession waits for the shell's end, ends all that it started, and says so
// in the audit log.
func (s *supervisor) watchSession(ctx context.Context, sess *session, end context.CancelFunc) {
	defer s.release()
	x := sess.shell
	exit, err := x.inside.Wait(ctx)
	x.kill()
	s.warn("session: end what is left", within(letGoPatience, func() error {
		<-x.inside.Done()
		return nil
	}))
	reason := audit.SessionEnded
	if err != nil || s.isStopping() {
		reason = audit.SessionStopped
	}
	sess.mu.Lock()
	sess.exit, sess.reason = exit, cmp.Or(sess.reason, reason)
	sess.closed = time.Now() // before whoever ran the last command is told of its end
	sess.mu.Unlock()
	end()
	sess.turn <- struct{}{} // the command that ran is through; there is no other
	sess.control.Close()
	sess.rouse()
	s.finish(ctx, x)
	sess.mu.Lock()
	event := audit.SessionClosed{
		Session: sess.id, Exec: x.id, Reason: sess.reason, DurationMS: sess.closed.Sub(x.begun).Milliseconds(),
	}
	sess.mu.Unlock()
	s.appendFirst(event)
	close(sess.over)
}

// end ends the session for a reason of the audit log, with all it started.
func (sess *session) end(reason string) {
	sess.mu.Lock()
	sess.reason = cmp.Or(sess.reason, reason)
	sess.mu.Unlock()
	sess.shell.end(api.ReasonStopped)
}

// closeSession ends a session and forgets it.
func (s *supervisor) closeSession(id string) error {
	sess, err := s.sessions.get(id)
	if err != nil {
		return err
	}
	sess.end(audit.SessionByClient)
	<-sess.over
	s.sessions.remove(id)
	return nil
}

// awaitSessions returns when every session is over.
func (s *supervisor) awaitSessions() error {
	for _, sess := range s.sessions.list() {
		<-sess.over
	}
	return nil
}

// enter waits for the turn to use the shell. Errors: Precondition once the
// session is closed; Canceled.
func (sess *session) enter(ctx context.Context) error {
	select {
	case sess.turn <- struct{}{}:
	case <-sess.ended.Done():
		return errClosed(sess.id)
	case <-ctx.Done():
		return errdefs.New(errdefs.Canceled, "session %s: %w", sess.id, ctx.Err())
	}
	if sess.ended.Err() != nil {
		<-sess.turn
		return errClosed(sess.id)
	}
	sess.rouse()
	return nil
}

// leave gives the turn to the next one.
func (sess *session) leave() {
	if sess.ended.Err() == nil {
		sess.rest()
	}
	<-sess.turn
}

func errClosed(id string) error {
	return errdefs.WithReason(errdefs.New(errdefs.Precondition, "session %s: session is closed", id), errdefs.SessionClosed)
}

// rest has the session end when it stays idle.
func (sess *session) rest() {
	if sess.idleAfter == 0 {
		return
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	sess.idle = time.AfterFunc(sess.idleAfter, func() { sess.end(audit.SessionIdle) })
}

// rouse takes back what rest has said.
func (sess *session) rouse() {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.idle != nil {
		sess.idle.Stop()
	}
}

func (sess *session) describe() api.Session {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	d := api.Session{ID: sess.id, Shell: sess.shell.command.Argv[0], CreatedAt: sess.shell.begun.UTC()}
	if !sess.closed.IsZero() {
		d.ClosedAt, d.Reason = sess.closed.UTC(), sess.reason
	}
	return d
}
