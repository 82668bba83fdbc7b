package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/ownport"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/connlimit"
	"github.com/agentfense/agentfense/internal/server/gateway"
	"github.com/agentfense/agentfense/internal/server/service"
)

// listeners are the listeners and their servers. REST calls the services through a separate gRPC
// server, which is not on the network, because that server trusts the gateway about client
// certificates.
type listeners struct {
	grpc, http net.Listener // http is nil without REST
	server     *grpc.Server
	health     *health.Server
	inner      *grpc.Server // for REST
	drain      func()       // ends calls that only wait
	pipe       *bufconn.Listener
	conn       *grpc.ClientConn
	rest       *http.Server
	idle       *idle              // nil if the server stays
	limiter    *connlimit.Limiter // of both listeners
}

// pipeBytes is the buffer between the gateway and the services.
const pipeBytes = 256 << 10

// listen opens the listeners before the server recovers its state, so that clients wait meanwhile
// instead of failing. leave ends an idle server.
func (p *parts) listen(ctx context.Context, o Options, leave func()) (f *listeners, err error) {
	f = new(listeners)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	secure, err := auth.ServerTLS(o.Config.Server.TLS)
	if err != nil {
		return f, err
	}
	if f.limiter, err = limitConnections(o.Config.Limits, p.files, o.Log); err != nil {
		return f, err
	}
	if f.grpc, err = f.listen(ctx, "server.grpc_addr", o.Config.Server.GRPCAddr); err != nil {
		return f, err
	}
	options := []grpc.ServerOption{grpc.ConnectionTimeout(o.Config.Limits.FirstCallTimeout)}
	if o.IdleExit > 0 {
		f.idle = watchIdle(o.IdleExit, p.service.Busy, leave)
		options = append(options, grpc.StatsHandler(f.idle))
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	f.server = newServer(o.Config, p.service.AuthInterceptor(), options...)
	p.service.Register(f.server)
	f.drain = p.service.Drain
	f.health = health.NewServer()
	healthv1.RegisterHealthServer(f.server, f.health)
	reflection.Register(f.server)
	if o.Config.Server.HTTPAddr == "" {
		return f, nil
	}
	return f, f.openREST(ctx, o, p, secure)
}

// openREST starts the gateway.
func (f *listeners) openREST(ctx context.Context, o Options, p *parts, secure *tls.Config) error {
	var err error
	if f.http, err = f.listen(ctx, "server.http_addr", o.Config.Server.HTTPAddr); err != nil {
		return err
	}
	interceptor := p.service.GatewayInterceptor(gateway.ClientCertKey)
	// All clients share this connection, so calls of one must not block those of others.
	f.inner = newServer(o.Config, interceptor, grpc.MaxConcurrentStreams(math.MaxUint32))
	p.service.Register(f.inner)
	f.pipe = bufconn.Listen(pipeBytes)
	f.conn, err = grpc.NewClient("passthrough:///services",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// The services limit their answers; the gateway and the server limit requests.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return errdefs.New(errdefs.Internal, "gateway: %w", err)
	}
	handler, err := gateway.New(gateway.Options{
		Conn: f.conn, Admit: interceptor.Known, Ready: p.store.Check, Log: o.Log, LoopbackOnly: o.NoAuth, MaxBodyBytes: o.Config.Limits.MaxMessageBytes,
		Connections: func() gateway.Connections { return gateway.Connections(f.limiter.Counts()) },
	})
	if err != nil {
		return errdefs.New(errdefs.Internal, "gateway: %w", err)
	}
	f.rest = gateway.Server(handler)
	f.rest.ConnState = func(c net.Conn, s http.ConnState) {
		restState(c, s)
		if f.idle != nil {
			f.idle.httpState(c, s)
		}
	}
	f.rest.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)
	if secure != nil {
		secure = secure.Clone()
		secure.NextProtos = []string{"h2", "http/1.1"}
		f.rest.TLSConfig = secure
		f.http = tls.NewListener(f.http, secure)
	}
	return nil
}

// Clients that wait for output send pings, some every ten seconds.
const leastPing = 5 * time.Second

// maxHeadBytes limits a call's metadata, as gateway.Server limits a request's header.
const maxHeadBytes = 64 << 10

// maxStreams limits the concurrent calls of one connection; more wait.
const maxStreams = 1024

func newServer(c *config.Config, interceptor service.AuthInterceptor, more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.InTapHandle(interceptor.Tap),
		grpc.ChainUnaryInterceptor(interceptor.Unary),
		grpc.ChainStreamInterceptor(interceptor.Stream),
		grpc.MaxRecvMsgSize(int(c.Limits.MaxMessageBytes)),
		grpc.MaxHeaderListSize(maxHeadBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute}),
	}, more...)...)
}

// listen opens a listener with limited connections.
func (f *listeners) listen(ctx context.Context, key, addr string) (net.Listener, error) {
	var l net.Listener
	var err error
	if path, isSocket := config.Socket(addr); isSocket {
		l, err = listenSocket(ctx, path)
	} else {
		l, err = ownport.Listen(ctx, addr)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Precondition, "%s: %w", key, err)
	}
	return f.limiter.Listen(l), nil
}

func (f *listeners) grpcAddr() string {
	if addr := f.grpc.Addr(); addr.Network() == "unix" {
		return config.SocketAddr(addr.String())
	}
	return f.grpc.Addr().String()
}

func (f *listeners) httpAddr() string {
	if f.http == nil {
		return ""
	}
	return f.http.Addr().String()
}

// advertise returns the addresses for this user's programs.
func (f *listeners) advertise(o Options) advertisement {
	return advertisement{
		GRPC: f.grpcAddr(), HTTP: f.httpAddr(), TLS: o.Config.Server.TLS.Enabled(), TokenFile: o.Config.Auth.TokenFile,
	}
}

// serve serves on all listeners and sends the error of one that fails.
func (f *listeners) serve() <-chan error {
	failed := make(chan error, 3)
	run := func(what string, serve func() error) {
		go func() {
			if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- errdefs.New(errdefs.Unavailable, "serve %s: %w", what, err)
			}
		}()
	}
	run("gRPC", func() error { return f.server.Serve(f.grpc) })
	if f.rest != nil {
		run("REST", func() error { return f.rest.Serve(f.http) })
		run("the gateway", func() error { return f.inner.Serve(f.pipe) })
	}
	return failed
}

// gracePeriod is how long running calls may take during a shutdown.
const gracePeriod = 10 * time.Second

// end waits for running calls, up to gracePeriod: first for those of REST, which are also calls of
// gRPC.
func (f *listeners) end() {
	if f.idle != nil {
		f.idle.stop()
	}
	f.health.Shutdown()
	f.drain()
	ctx, cancel := context.WithTimeout(context.Background(), gracePeriod)
	defer cancel()
	if f.rest != nil {
		if err := f.rest.Shutdown(ctx); err != nil {
			_ = f.rest.Close() // cut off what is left
		}
		_ = f.conn.Close()
		f.inner.Stop()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.server.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		f.server.Stop()
		<-done
	}
}

// close closes listeners that never served.
func (f *listeners) close() error {
	var err error
	if f.idle != nil {
		f.idle.stop()
	}
	for _, l := range []net.Listener{f.grpc, f.http} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	if f.conn != nil {
		err = errors.Join(err, f.conn.Close())
	}
	return err
}
