package mcpserver

import (
	"context"
	"sync"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// sandbox is the one that the tools act in. Its methods may be called concurrently.
type sandbox struct {
	o *Options

	mu     sync.Mutex
	opened bool
	sb     backend.Sandbox
	live   backend.Live // nil: it has not been entered
	left   func()       // what Options.Entered returned
}

// open finds or makes the sandbox.
func (s *sandbox) open(ctx context.Context) (backend.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(ctx)
}

func (s *sandbox) openLocked(ctx context.Context) (sb backend.Sandbox, err error) {
	if s.opened {
		// Read again: a person may have removed it, and a name may be another sandbox's then.
		sb, err = s.o.Backend.Sandbox(ctx, s.sb.Ref())
		if err == nil && sb.Record.ID != s.sb.Record.ID {
			err = errdefs.New(errdefs.NotFound, "sandbox %s: another one has the name now", s.sb.Record.Name)
		}
		if err == nil || !errdefs.Is(err, errdefs.NotFound) {
			return sb, err
		}
		return sb, errdefs.New(errdefs.NotFound, "sandbox %s was removed: the user must restart this server", s.sb.Record.Name)
	}
	if s.sb, err = s.o.Open(ctx); err == nil {
		s.opened = true
	}
	return s.sb, err
}

// enter starts the sandbox if it does not run, and keeps it running.
func (s *sandbox) enter(ctx context.Context) (backend.Sandbox, backend.Live, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, err := s.openLocked(ctx)
	if err != nil || s.live != nil {
		return sb, s.live, err
	}
	// The sandbox outlives the call.
	ctx = context.WithoutCancel(ctx)
	live, err := s.o.Backend.Enter(ctx, sb, backend.EnterOptions{Warn: s.o.Warn})
	if err == nil {
		s.live, s.left = live, s.o.Entered(ctx, sb)
	}
	return sb, s.live, err
}

// ref names the sandbox in calls of the backend, once it is open.
func (s *sandbox) ref() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sb.Ref()
}

// workspace is the path of the project directory inside, "" until the sandbox is open.
func (s *sandbox) workspace() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sb.Record.Workspace
}

// lost forgets a sandbox that ended although we use it: a person stopped it.
func (s *sandbox) lost(live backend.Live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == live {
		s.left()
		_ = live.Leave() // it has ended
		s.live = nil
	}
}

// leave ends our use.
func (s *sandbox) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return
	}
	s.left()
	if err := s.live.Leave(); err != nil {
		s.o.Warn(err)
	}
	s.live = nil
}
