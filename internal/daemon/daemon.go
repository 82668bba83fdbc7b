// Package daemon puts the server together: configuration, state, services and
// listeners. It is all that `agentfense serve` calls.
//
// A server owns the codebases and the database of its state directory, one
// server at a time. It does not own sandboxes: they go on when it ends, however
// it ends, and the next server finds them.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/agentfense/agentfense/internal/auth"
	"github.com/agentfense/agentfense/internal/codebase"
	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/service"
	"github.com/agentfense/agentfense/internal/store"
	"github.com/agentfense/agentfense/internal/supervise"
)

// Options are what a server is started with.
type Options struct {
	Config *config.Config
	Home   *sandbox.Home
	NoAuth bool // who shows nothing may do everything; on loopback only
	Log    *slog.Logger
	// Ready, if not nil, is called once with the address that is listened on.
	Ready func(grpcAddr string)
}

// gracePeriod is how long calls under way may take once the server is to end.
const gracePeriod = 10 * time.Second

// Run serves until ctx ends, and then lets calls under way end. Sandboxes go on.
// Errors: Precondition if another server has the state directory, or for an
// address that cannot be listened on; as the parts have them.
func Run(ctx context.Context, o Options) (err error) {
	o.Config.UnderHome(o.Home.Dir())
	if err := os.Setenv(supervise.BwrapVariable, bwrapPath(o.Config)); err != nil {
		return fault.New(fault.Internal, "runtime.bwrap_path: %w", err)
	}
	p, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	listener, err := listen(ctx, "server.grpc_addr", o.Config.Server.GRPCAddr)
	if err != nil {
		return err
	}
	server, beat, err := p.server(o.Config)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := p.service.Recover(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	o.Log.Info("serving", "grpc", listener.Addr().String())
	if o.Ready != nil {
		o.Ready(listener.Addr().String())
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fault.New(fault.Unavailable, "serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	beat.Shutdown()
	o.Log.Info("ending; sandboxes go on")
	end(server)
	return nil
}

// bwrapPath is the bubblewrap to use, "" for the one on the PATH.
func bwrapPath(c *config.Config) string {
	if c.Runtime.BwrapPath == config.Default().Runtime.BwrapPath {
		return ""
	}
	return c.Runtime.BwrapPath
}

// end lets the calls under way end, for a while.
func end(server *grpc.Server) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.GracefulStop()
	}()
	select {
	case <-done:
	case <-time.After(gracePeriod):
		server.Stop()
		<-done
	}
}

func listen(ctx context.Context, key, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fault.New(fault.Precondition, "%s: %w", key, err)
	}
	return l, nil
}

// parts are what a server is made of.
type parts struct {
	store     *store.Store
	codebases *codebase.Store
	auth      *auth.Authenticator
	service   *service.Service
}

// open opens the state. Whoever has the codebases is the server.
func open(ctx context.Context, o Options) (p *parts, err error) {
	p = new(parts)
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
	p.auth, err = auth.New(p.store, auth.Options{DefaultToken: token, NoAuth: o.NoAuth, Addrs: addrs})
	if err != nil {
		return p, err
	}
	p.service = service.New(service.Options{
		Config: o.Config, Home: o.Home, Store: p.store, Codebases: p.codebases, Auth: p.auth, Log: o.Log,
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
	return err
}

// Clients that only wait for output ping; older ones do it every ten seconds.
const leastPing = 5 * time.Second

// server makes the gRPC server, with health and reflection.
func (p *parts) server(c *config.Config) (*grpc.Server, *health.Server, error) {
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(p.service.Unary),
		grpc.ChainStreamInterceptor(p.service.Stream),
		grpc.MaxRecvMsgSize(int(c.Limits.MaxMessageBytes)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute}),
	}
	tls, err := auth.ServerTLS(c.Server.TLS)
	if err != nil {
		return nil, nil, err
	}
	if tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(tls)))
	}
	server := grpc.NewServer(options...)
	p.service.Register(server)
	beat := health.NewServer()
	healthv1.RegisterHealthServer(server, beat)
	reflection.Register(server)
	return server, beat, nil
}
