// Package daemon assembles the server from configuration, state, services and listeners, for
// `agentfense serve`.
//
// One server at a time owns the codebases and the database of a state directory. It does not own
// the sandboxes: they keep running when the server ends or is killed, and the next server finds
// them.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/service"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Options are those of Run.
type Options struct {
	Config *config.Config
	Home   *record.Home
	NoAuth bool // callers without credentials may do everything; only on loopback addresses
	Log    *slog.Logger
	// IdleExit, if not 0, ends the server after this time without a connection, unless a sandbox
	// will expire.
	IdleExit time.Duration
	// Ready, if not nil, is called once with the addresses of the listeners; httpAddr is "" without
	// REST.
	Ready func(grpcAddr, httpAddr string)
}

// Run serves until ctx ends, and then waits for running calls. Sandboxes keep running. Errors:
// Precondition if another server uses the state directory or the address; those of the parts.
func Run(ctx context.Context, o Options) (err error) {
	o.Config.UnderHome(o.Home.Dir())
	if err := tellSupervisors(o.Config); err != nil {
		return err
	}
	o.Home.BoundAudit(o.Config.Audit)
	if path := o.Config.Storage.MountPath; path != "" {
		o.Log.Warn("storage.mount_path has no effect: views are mounted in the sandboxes' directories", "mount_path", path)
	}
	absent, err := service.CheckRoots(o.Config.Mounts.Roots)
	if err != nil {
		return err
	}
	for _, path := range absent {
		o.Log.Warn("mounts.roots: no such directory", "path", path)
	}
	p, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	f, err := p.listen(ctx, o, leave)
	if err != nil {
		return err
	}
	if err := p.service.Recover(ctx); err != nil {
		return errors.Join(err, f.close())
	}
	withdraw, err := f.advertise(o).publish(o.Home.Dir())
	if err != nil {
		return errors.Join(err, f.close())
	}
	endFeeds, err := startFeeds(o)
	if err != nil {
		return errors.Join(err, withdraw(), f.close())
	}
	defer endFeeds()
	o.Log.Info("serving", "grpc", f.grpcAddr(), "http", f.httpAddr())
	if o.Ready != nil {
		o.Ready(f.grpcAddr(), f.httpAddr())
	}
	failed := f.serve()
	select {
	case err = <-failed:
	case <-ctx.Done():
		o.Log.Info("shutting down; sandboxes keep running")
	}
	err = errors.Join(err, withdraw())
	f.end()
	return err
}

// tellSupervisors sets the environment variables with which supervisors find their programs. They
// inherit them from the server.
func tellSupervisors(c *config.Config) error {
	variables := c.Audit.Environ()
	variables[supervise.BwrapVariable] = bwrapPath(c.Runtime)
	variables[supervise.DockerHostVariable] = c.Runtime.Docker.Host
	for name, value := range variables {
		if err := os.Setenv(name, value); err != nil {
			return errdefs.New(errdefs.Internal, "%s: %w", name, err)
		}
	}
	return nil
}

// bwrapPath is the bubblewrap to use, "": the one in PATH.
func bwrapPath(c config.Runtime) string {
	if c.BwrapPath == config.Default().Runtime.BwrapPath {
		return ""
	}
	return c.BwrapPath
}

// parts are the parts of a server.
type parts struct {
	store     *store.Store
	codebases *codebase.Store
	auth      *auth.Authenticator
	service   *service.Service
	release   func() // ends the note that no token is required
	files     uint64 // limit of open files
}

// open opens the state. The lock of the codebases makes this process the only server.
func open(ctx context.Context, o Options) (p *parts, err error) {
	p = new(parts)
	if p.files, err = openFiles(); err != nil {
		return p, err
	}
	o.Config.Limits.CallsPerOwner = callsPerOwner(o.Config.Limits, p.files)
	o.Config.Limits.ExecsPerOwner = cmp.Or(o.Config.Limits.ExecsPerOwner, o.Config.Limits.CallsPerOwner)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.store, err = store.Open(ctx, o.Config.Storage.DBPath, store.Options{}); err != nil {
		return p, err
	}
	p.codebases, err = codebase.Open(codebase.Options{
		Dir: o.Config.Storage.CodebasePath, Home: o.Home.Dir(), Observer: service.Observer{Store: p.store, Log: o.Log},
		Limits: service.CodebaseLimits(o.Config.Limits), OwnerOf: service.OwnerOf(p.store),
	})
	if err != nil {
		return p, err
	}
	token, err := auth.DefaultToken(o.Config.Auth.TokenFile)
	if err != nil {
		return p, err
	}
	addrs := []string{o.Config.Server.GRPCAddr}
	if o.Config.Server.HTTPAddr != "" {
		addrs = append(addrs, o.Config.Server.HTTPAddr)
	}
	if o.NoAuth {
		if p.release, err = o.Home.Tokenless(); err != nil {
			return p, err
		}
	}
	p.auth, err = auth.New(p.store, auth.Options{DefaultToken: token, NoAuth: o.NoAuth, Addrs: addrs})
	if err != nil {
		return p, err
	}
	getenv, err := service.TakeVariables(o.Config)
	if err != nil {
		return p, err
	}
	p.service = service.New(service.Options{
		Config: o.Config, Home: o.Home, Store: p.store, Codebases: p.codebases, Auth: p.auth, Log: o.Log, Getenv: getenv,
	})
	return p, nil
}

func (p *parts) close() error {
	var err error
	if p.service != nil {
		p.service.Close()
	}
	if p.codebases != nil {
		err = p.codebases.Close()
	}
	if p.store != nil {
		err = errors.Join(err, p.store.Close())
	}
	if p.release != nil {
		p.release()
	}
	return err
}
