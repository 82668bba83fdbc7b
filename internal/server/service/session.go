package service

import (
	"cmp"
	"context"
	"os"
	"strings"
	"sync"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// sessionIndex remembers the sandbox of each session. For an unknown session the service asks the
// supervisors, so that a new server finds the sessions of the last one.
type sessionIndex struct {
	mu sync.Mutex
	in map[string]record.ID
}

func (x *sessionIndex) set(session string, in record.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.in == nil {
		x.in = map[string]record.ID{}
	}
	x.in[session] = in
}

func (x *sessionIndex) get(session string) (record.ID, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok := x.in[session]
	return id, ok
}

func (x *sessionIndex) remove(session string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.in, session)
}

// forget forgets the sessions of a sandbox.
func (x *sessionIndex) forget(id record.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for session, of := range x.in {
		if of == id {
			delete(x.in, session)
		}
	}
}

// CreateSession starts a shell for several commands.
func (c *sandboxServer) CreateSession(ctx context.Context, m *sandboxv1.CreateSessionRequest) (*sandboxv1.Session, error) {
	s := c.service
	r, err := wireconv.DecodeCreateSession(m)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandbox(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	env, err := environment(sb, r.Env)
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(r.Shell, 0) {
		return nil, errdefs.New(errdefs.Invalid, "shell: contains a NUL")
	}
	client, err := s.running(ctx, sb)
	if err != nil {
		return nil, err
	}
	done, err := s.holdFor(ctx, sb) // the shell may run a file of the workspace
	if err != nil {
		return nil, err
	}
	defer done()
	opened, err := client.OpenSession(ctx, api.SessionOptions{
		ID: string(id.NewSession()), Shell: r.Shell, Env: env, IdleTimeout: s.config.Sandbox.SessionIdleTimeout,
	})
	if err != nil {
		return nil, sessionError("shell", err)
	}
	s.sessions.set(opened.ID, sb.ID())
	return wireconv.EncodeSession(sb.ID(), opened), nil
}

// sessionError names the field at fault if a shell could not be started.
func sessionError(field string, err error) error {
	if notStarted, is := asCommandError(err); is {
		return errdefs.New(errdefs.Invalid, "%s: %s", field, notStarted.Text)
	}
	if errdefs.Is(err, errdefs.Invalid) {
		return errdefs.New(errdefs.Invalid, "%s: %w", field, err)
	}
	return err
}

// GetSession describes a session.
func (c *sandboxServer) GetSession(ctx context.Context, r *sandboxv1.GetSessionRequest) (*sandboxv1.Session, error) {
	found, err := c.service.sessionFor(ctx, r)
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeSession(found.sandbox.ID(), found.session), nil
}

// ListSessions lists the sessions of a sandbox, the oldest first. A sandbox that is not running has
// none.
func (c *sandboxServer) ListSessions(ctx context.Context, r *sandboxv1.ListSessionsRequest) (*sandboxv1.ListSessionsResponse, error) {
	sb, err := c.service.sandboxFor(ctx, r)
	if err != nil {
		return nil, err
	}
	list, _, err := sessionsOf(ctx, sb)
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListSessionsResponse{}
	for _, session := range list {
		answer.Sessions = append(answer.Sessions, wireconv.EncodeSession(sb.ID(), session))
	}
	return answer, nil
}

// DestroySession ends a session's shell and all that it started.
func (c *sandboxServer) DestroySession(ctx context.Context, r *sandboxv1.DestroySessionRequest) (*sandboxv1.Empty, error) {
	found, err := c.service.sessionFor(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := found.client.CloseSession(ctx, found.session.ID); err != nil {
		return nil, err
	}
	c.service.sessions.remove(found.session.ID)
	return &sandboxv1.Empty{}, nil
}

// SessionExec runs a command in a session and returns what it wrote.
func (c *sandboxServer) SessionExec(ctx context.Context, r *sandboxv1.SessionExecRequest) (*sandboxv1.ExecResult, error) {
	job, err := c.service.newSessionExec(ctx, r)
	if err != nil {
		return nil, neverStarted(err)
	}
	return c.service.collect(ctx, job)
}

// SessionExecStream runs a command in a session and sends what it writes.
func (c *sandboxServer) SessionExecStream(r *sandboxv1.SessionExecRequest, to sandboxv1.SandboxService_SessionExecStreamServer) error {
	job, err := c.service.newSessionExec(to.Context(), r)
	if err != nil {
		return neverStarted(err)
	}
	found, err := c.service.sessionFor(to.Context(), r)
	if err != nil {
		return err
	}
	if !r.Detach && found.session.ClosedAt.IsZero() { // the shell does not report when the command begins
		if err := to.SendHeader(nil); err != nil {
			return err
		}
	}
	return c.service.stream(to.Context(), job, to)
}

// sessionTimeout is the default time-out of a command of a session.
const sessionTimeout = 30 * time.Second

// newSessionExec checks a request.
func (s *Service) newSessionExec(ctx context.Context, m *sandboxv1.SessionExecRequest) (*job, error) {
	r, err := wireconv.DecodeSessionExec(m)
	if err != nil {
		return nil, err
	}
	if err := checkCommand(r.Command); err != nil {
		return nil, err
	}
	standard := sessionTimeout
	if most := s.config.Runtime.MaxTimeout; most > 0 {
		standard = min(standard, most)
	}
	timeout, err := s.timeout(r.Timeout, standard)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandboxOf(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	client := api.At(sb.Dir())
	command := api.SessionCommand{Text: r.Command, Timeout: timeout}
	j := &job{sandbox: sb, client: client, timeout: timeout, detach: r.Detach, named: r.Detach, gone: id.NoSuch("session", string(r.Session))}
	j.run = func(ctx context.Context, stdout, stderr *os.File) (api.Exit, error) {
		if r.Detach {
			return j.sessionStart(ctx, string(r.Session), command, stdout, stderr)
		}
		return client.SessionExec(ctx, string(r.Session), command, stdout, stderr)
	}
	return j, nil
}

// sessionStart runs a command in a session as a detached one.
func (j *job) sessionStart(ctx context.Context, id string, command api.SessionCommand, stdout, stderr *os.File) (api.Exit, error) {
	empty, w, err := os.Pipe() // a command of a session has no input
	if err != nil {
		return api.Exit{}, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
	}
	w.Close()
	running, err := j.client.SessionStart(ctx, id, command, empty, stdout, stderr)
	empty.Close()
	if err != nil {
		return api.Exit{}, err
	}
	j.begins(running.ID, running.LostBytes)
	return running.Wait(ctx)
}

// sandboxOf returns the sandbox of a session of the caller, also of a session that has ended since.
func (s *Service) sandboxOf(ctx context.Context, session id.Session) (*record.Sandbox, error) {
	if in, known := s.sessions.get(string(session)); known {
		sb, err := s.sandbox(ctx, in)
		if errdefs.Is(err, errdefs.NotFound) {
			err = id.NoSuch("session", string(session))
		}
		return sb, err
	}
	found, err := s.session(ctx, session)
	return found.sandbox, err
}

// foundSession is a session and where it is.
type foundSession struct {
	sandbox *record.Sandbox
	client  *api.Client
	session api.Session
}

// sessionFor returns the session that a request is about. Errors: as session.
func (s *Service) sessionFor(ctx context.Context, r interface{ GetSessionId() string }) (foundSession, error) {
	key, err := wireconv.SessionID(r)
	if err != nil {
		return foundSession{}, err
	}
	return s.session(ctx, key)
}

// session returns a session of the caller. Errors: NotFound also for one of another owner.
func (s *Service) session(ctx context.Context, of id.Session) (foundSession, error) {
	key := string(of)
	if in, known := s.sessions.get(key); known {
		found, err := s.sessionIn(ctx, in, key)
		if !errdefs.Is(err, errdefs.NotFound) {
			return found, err
		}
		return foundSession{}, id.NoSuch("session", key)
	}
	page := store.Page{Size: s.config.Limits.MaxPageSize}
	filter := store.SandboxFilter{OwnerID: callerOf(ctx).Owner}
	absent := id.NoSuch("session", key)
	for {
		entries, next, err := s.store.Sandboxes(ctx, filter, page)
		if err != nil {
			return foundSession{}, err
		}
		for _, entry := range entries {
			bounded, cancel := context.WithTimeout(ctx, answerPatience)
			found, err := s.sessionIn(bounded, entry.ID, key)
			cancel()
			switch {
			case err == nil:
				return found, nil
			case !errdefs.Is(err, errdefs.NotFound): // a supervisor that does not answer may have it
				absent = err
			}
		}
		if page.Token = cmp.Or(next, page.Token); next == "" {
			return foundSession{}, absent
		}
	}
}

// sessionIn looks for a session in a sandbox. Errors: NotFound.
func (s *Service) sessionIn(ctx context.Context, in record.ID, key string) (foundSession, error) {
	sb, err := s.sandbox(ctx, in)
	if err != nil {
		return foundSession{}, err
	}
	list, client, err := sessionsOf(ctx, sb)
	if err != nil {
		return foundSession{}, err
	}
	for _, session := range list {
		if session.ID == key {
			s.sessions.set(key, sb.ID())
			return foundSession{sb, client, session}, nil
		}
	}
	return foundSession{}, id.NoSuch("session", key)
}

// sessionsOf asks a sandbox's supervisor, if there is one.
func sessionsOf(ctx context.Context, sb *record.Sandbox) ([]api.Session, *api.Client, error) {
	client, err := api.Dial(ctx, sb.Dir())
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	list, err := client.Sessions(ctx)
	return list, client, err
}
