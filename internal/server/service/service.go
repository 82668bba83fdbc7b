// Package service is the server's interface: it answers the calls of sandbox.v1 (api/sandbox/v1).
//
// It checks the caller, the fields and the owner of what a call is about, and translates; codebase
// stores files, sandbox applies and synchronizes, supervise runs. A sandbox's record alone says
// what it is, so a killed server loses nothing: the next one finds records and running supervisors,
// and makes the store's index of sandboxes again from the records. Changes of a sandbox reach its
// uploaded codebase as sync.go says: before the call returns, the other sandboxes of the codebase
// know them.
//
// Goroutines: those of the calls, one per sandbox that expires, one that cleans up. Lock order:
// lives (one sandbox's start, stop or destruction), then syncs (one sandbox's sync, or the
// beginning of its hold), then the codebase's own.
package service

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Service answers the calls of both services of the interface.
type Service struct {
	config    *config.Config
	home      *record.Home
	store     *store.Store
	codebases *codebase.Store
	auth      *auth.Authenticator
	log       *slog.Logger

	background sync.WaitGroup
	stop       context.CancelFunc
	stopped    context.Context
	drain      context.CancelFunc
	draining   context.Context // done when calls that could last for ever are to end

	lives    keyed // by sandbox
	syncs    keyed // by sandbox
	expiries expiries
	calls    underWay
	execs    underWay
	holders  holders
	sessions sessionIndex
	hidden   hidden
}

// Options are what a Service is made of; all are needed.
type Options struct {
	Config    *config.Config
	Home      *record.Home
	Store     *store.Store
	Codebases *codebase.Store
	Auth      *auth.Authenticator
	Log       *slog.Logger
}

// New returns a Service that knows nothing yet: Recover it before it serves.
func New(o Options) *Service {
	s := &Service{
		config: o.Config, home: o.Home, store: o.Store, codebases: o.Codebases, auth: o.Auth, log: o.Log,
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.draining, s.drain = context.WithCancel(s.stopped)
	s.hidden.add(o.Config.Storage.CodebasePath)
	return s
}

// Register makes the services part of a server.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	sandboxv1.RegisterCodebaseServiceServer(to, &codebaseServer{service: s})
	sandboxv1.RegisterSandboxServiceServer(to, &sandboxServer{service: s})
}

// Drain ends the calls that only wait for what others do: followed audit logs,
// and detached commands, which go on.
func (s *Service) Drain() { s.drain() }

// errEnding ends a call that Drain ends.
func errEnding() error { return errdefs.New(errdefs.Unavailable, "the server is ending") }

// Close ends what the service does by itself. Sandboxes go on.
func (s *Service) Close() {
	s.stop()
	s.expiries.stopAll()
	s.background.Wait()
}

// keyed are mutexes by name.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*keyedLock
}

type keyedLock struct {
	sync.Mutex
	users int
}

// lock waits for its turn at key and returns what ends it.
func (k *keyed) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyedLock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &keyedLock{}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
}

// CodebaseLimits are those that a configuration sets to codebases.
func CodebaseLimits(l config.ServerLimits) codebase.StorageLimits {
	return codebase.StorageLimits{
		FileBytes: l.MaxFileBytes, Bytes: l.MaxCodebaseBytes, Files: int64(l.MaxCodebaseFiles),
		OwnerBytes: l.MaxCodebaseBytesPerOwner, OwnerFiles: int64(l.MaxCodebaseFilesPerOwner),
	}
}

// OwnerOf returns what names the owner of a codebase of the store.
func OwnerOf(s *store.Store) func(codebase.ID) (string, error) {
	return func(id codebase.ID) (string, error) {
		entry, err := s.Codebase(context.Background(), id)
		return entry.OwnerID, err
	}
}

// Observer writes into the store what codebases hold.
type Observer struct {
	Store *store.Store
	Log   *slog.Logger
}

// CodebaseChanged is called by the codebases after each change.
func (o Observer) CodebaseChanged(id codebase.ID, u codebase.Usage) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := o.Store.SetCodebaseContent(ctx, id, u.SizeBytes, int(u.FileCount), u.UpdatedAt)
	if err != nil {
		o.Log.Warn("codebase: what it holds is not noted", "codebase", id, "err", err)
	}
}
