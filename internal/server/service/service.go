// Package service answers the calls of the API (api/sandbox/v1).
//
// It checks the caller, the owner and the limits of a request; wireconv reads it. codebase stores
// files, package apply applies changes, supervise runs commands. The record of a sandbox is the
// only source of truth, so a killed server loses nothing: the next one finds the records and the
// running supervisors, and builds the store's index from the records. Changes of a sandbox reach
// its uploaded codebase as in sync.go; the other sandboxes of the codebase show them before the
// call returns.
//
// Goroutines: those of the calls, one per sandbox that expires, one for clean-up. Lock order: lives
// (start, stop or removal of one sandbox; those of two by their ids), then syncs (sync of one
// sandbox, or the beginning of its hold), then the codebase's own.
package service

import (
	"context"
	"log/slog"
	"os"
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

// Service answers the calls of all services of the API.
type Service struct {
	config    *config.Config
	home      *record.Home
	store     *store.Store
	codebases *codebase.Store
	auth      *auth.Authenticator
	log       *slog.Logger
	getenv    func(string) string

	background sync.WaitGroup
	stop       context.CancelFunc
	stopped    context.Context
	drain      context.CancelFunc
	draining   context.Context // done when calls that only wait must end

	lives    keyed // by sandbox
	syncs    keyed // by sandbox
	expiries expiries
	calls    underWay
	execs    underWay
	exports  underWay
	queries  queries
	holders  holders
	sessions sessionIndex
	hidden   hidden
}

// Options are what a Service needs; all but Getenv are required.
type Options struct {
	Config    *config.Config
	Home      *record.Home
	Store     *store.Store
	Codebases *codebase.Store
	Auth      *auth.Authenticator
	Log       *slog.Logger
	Getenv    func(string) string // as TakeVariables returns it; nil: os.Getenv
}

// New returns a Service. Call Recover before it serves.
func New(o Options) *Service {
	s := &Service{
		config: o.Config, home: o.Home, store: o.Store, codebases: o.Codebases, auth: o.Auth, log: o.Log, getenv: o.Getenv,
	}
	if s.getenv == nil {
		s.getenv = os.Getenv
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.draining, s.drain = context.WithCancel(s.stopped)
	s.hidden.add(o.Config.Storage.CodebasePath)
	s.queries.turn = make(chan struct{}, queriesAtOnce)
	return s
}

// Register registers the services at a server.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	sandboxv1.RegisterCodebaseServiceServer(to, &codebaseServer{service: s})
	sandboxv1.RegisterSandboxServiceServer(to, &sandboxServer{service: s})
	sandboxv1.RegisterSnapshotServiceServer(to, &snapshotServer{service: s})
	sandboxv1.RegisterHistoryServiceServer(to, &historyServer{service: s})
	sandboxv1.RegisterBoardServiceServer(to, &boardServer{service: s})
	sandboxv1.RegisterExportServiceServer(to, &exportServer{service: s})
}

// Drain ends the calls that only wait: followed logs, watches and detached commands, which keep
// running.
func (s *Service) Drain() { s.drain() }

// errEnding ends a call that Drain ends.
func errEnding() error { return errdefs.New(errdefs.Unavailable, "the server is shutting down") }

// Close ends the service's own work. Sandboxes keep running.
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

// lock locks the mutex of key.
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

// CodebaseLimits returns the limits of codebases that a configuration sets.
func CodebaseLimits(l config.ServerLimits) codebase.StorageLimits {
	return codebase.StorageLimits{
		FileBytes: l.MaxFileBytes, Bytes: l.MaxCodebaseBytes, Files: int64(l.MaxCodebaseFiles),
		OwnerBytes: l.MaxCodebaseBytesPerOwner, OwnerFiles: int64(l.MaxCodebaseFilesPerOwner),
	}
}

// OwnerOf returns a function that looks up the owner of a codebase.
func OwnerOf(s *store.Store) func(codebase.ID) (string, error) {
	return func(id codebase.ID) (string, error) {
		entry, err := s.Codebase(context.Background(), id)
		return entry.OwnerID, err
	}
}

// Observer records the size of codebases in the store.
type Observer struct {
	Store *store.Store
	Log   *slog.Logger
}

// CodebaseChanged implements codebase.Observer.
func (o Observer) CodebaseChanged(id codebase.ID, u codebase.Usage) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := o.Store.SetCodebaseContent(ctx, id, u.SizeBytes, int(u.FileCount), u.UpdatedAt)
	if err != nil {
		o.Log.Warn("cannot record the size of a codebase", "codebase", id, "err", err)
	}
}
