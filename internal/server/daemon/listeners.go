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
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/connlimit"
	"github.com/agentfense/agentfense/internal/server/gateway"
	"github.com/agentfense/agentfense/internal/server/service"
)

// listeners are the listeners and what answers on them. REST reaches the services
// through a gRPC server of its own that no network client can reach, because it
// is believed who a client's certificate says it is.
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

// pipeBytes is how much may wait between the gateway and the services.
const pipeBytes = 256 << 10

// listen opens the listeners, so that clients wait rather than fail while the
// server takes up its work. leave ends the server, when it is idle.
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

// openREST puts the gateway before the services.
func (f *listeners) openREST(ctx context.Context, o Options, p *parts, secure *tls.Config) error {
	var err error
	if f.http, err = f.listen(ctx, "server.http_addr", o.Config.Server.HTTPAddr); err != nil {
		return err
	}
	interceptor := p.service.GatewayInterceptor(gateway.ClientCertKey)
	// One connection carries the calls of all clients: those of one must not keep
	// others waiting.
	f.inner = newServer(o.Config, interceptor, grpc.MaxConcurrentStreams(math.MaxUint32))
	p.service.Register(f.inner)
	f.pipe = bufconn.Listen(pipeBytes)
	f.conn, err = grpc.NewClient("passthrough:///services",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// What the services answer is theirs to bound; what clients send, the
		// gateway and the server do.
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

// Clients that only wait for output ping, some of them every ten seconds.
const leastPing = 5 * time.Second

// maxHeadBytes bounds a call's metadata, of whomever they are, as gateway.Server
// bounds a request's head.
const maxHeadBytes = 64 << 10

// maxStreams bounds the calls at once of one connection; more wait.
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

// listen opens a listener with bounded connections.
func (f *listeners) listen(ctx context.Context, key, addr string) (net.Listener, error) {
	var l net.Listener
	var err error
	if path, isSocket := config.Socket(addr); isSocket {
		l, err = listenSocket(ctx, path)
	} else {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
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

// advertise returns what programs of this user need to find us.
func (f *listeners) advertise(o Options) advertisement {
	return advertisement{
		GRPC: f.grpcAddr(), HTTP: f.httpAddr(), TLS: o.Config.Server.TLS.Enabled(), TokenFile: o.Config.Auth.TokenFile,
	}
}

// serve answers on all listeners and says which of them failed.
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

// gracePeriod is how long calls under way may take once the server is to end.
const gracePeriod = 10 * time.Second

// end lets the calls under way end, for a while: first those of REST, which are
// calls of gRPC too.
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
			_ = f.rest.Close() // what took too long is cut off
		}
		_ = f.conn.Close() // nobody uses it any more
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

// close gives up what never served.
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
