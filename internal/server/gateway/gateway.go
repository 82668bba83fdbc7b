// Package gateway serves the API as REST: HTTP and JSON in front of the gRPC services.
//
// Each request becomes one call on Options.Conn, with the same interceptors, limits and streams as
// a call of a gRPC client. Most routes are generated from the API's files; the package adds those
// of uploads, downloads and streams, for which JSON does not fit. It decides nothing: the service
// checks rights and paths, and this package accesses no file. docs/rest.md describes the routes.
//
// It refuses requests that a browser sends for a page of another origin: there is no CORS.
//
// Each stream has one goroutine that receives from the service and ends with the request. The end
// of the request cancels the call.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// ClientCertKey is the metadata with the DER form of the client's certificate, if TLS verified one.
// The service accepts it only on the gateway's own connection, which is not on the network.
const ClientCertKey = "agentfense-client-cert-bin"

// Options are those of New. Only Conn is required.
type Options struct {
	// Conn is the connection to the gRPC server. Only the gateway may use it, see ClientCertKey. It
	// must allow messages as large as the server's.
	Conn grpc.ClientConnInterface
	// Admit authenticates a caller by the incoming metadata of the context, before the body of the
	// request is read. The peer of the context is that of the connection (see Server). Nil: only
	// the calls authenticate.
	Admit func(context.Context) error
	// Ready returns why the server is not ready, nil if it is. Nil: it is always ready.
	Ready func(context.Context) error
	// Registry has the metrics of /metrics; the gateway adds its own. Nil: a new one with those of
	// Go and of the process.
	Registry *prometheus.Registry
	// Connections returns the numbers of connections for /metrics. Nil: no such metrics.
	Connections func() Connections
	Log         *slog.Logger // nil: slog.Default()

	MaxBodyBytes int64         // of a request in JSON; 0: 16 MiB. The service limits uploads.
	BodyTimeout  time.Duration // the longest pause within a request's body; 0: 30 s
	Heartbeat    time.Duration // between comments in an idle stream; 0: 15 s

	// LoopbackOnly refuses requests whose Host is not this host: without tokens, a web page could
	// reach the server by a name that resolves to 127.0.0.1 (DNS rebinding).
	LoopbackOnly bool
}

type gateway struct {
	mux       *runtime.ServeMux // the generated routes
	sandboxes sandboxv1.SandboxServiceClient
	codebases sandboxv1.CodebaseServiceClient
	snapshots sandboxv1.SnapshotServiceClient
	history   sandboxv1.HistoryServiceClient
	boards    sandboxv1.BoardServiceClient
	exports   sandboxv1.ExportServiceClient
	openAPI   []byte
	metrics   http.Handler
	o         Options
}

// New returns the handler of all routes.
// Errors: without a Conn; if the Registry already has metrics with the gateway's names.
func New(o Options) (http.Handler, error) {
	if o.Conn == nil {
		return nil, errors.New("gateway: no connection to the server")
	}
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 16<<20)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
		o.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	g := &gateway{
		mux:       newMux(),
		sandboxes: sandboxv1.NewSandboxServiceClient(o.Conn),
		codebases: sandboxv1.NewCodebaseServiceClient(o.Conn),
		snapshots: sandboxv1.NewSnapshotServiceClient(o.Conn),
		history:   sandboxv1.NewHistoryServiceClient(o.Conn),
		boards:    sandboxv1.NewBoardServiceClient(o.Conn),
		exports:   sandboxv1.NewExportServiceClient(o.Conn),
		o:         o,
	}
	if err := g.register(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registry, o.Connections)
	if err != nil {
		return nil, err
	}
	g.metrics = m.page
	if g.openAPI, err = openAPI(); err != nil {
		return nil, err
	}
	return m.count(g.guard(http.HandlerFunc(g.serve))), nil
}

// Server returns a server of h with time-outs for the header of a request and for the next request,
// but not for responses, because streams last. The caller sets the address, TLS and the log.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr()})
		},
		MaxHeaderBytes: 64 << 10,
	}
}

func newMux() *runtime.ServeMux {
	drop := func(string) (string, bool) { return "", false }
	return runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newCodec()),
		runtime.SetQueryParameterParser(&query{}), // global: a process has one gateway
		runtime.WithErrorHandler(muxError),
		runtime.WithRoutingErrorHandler(routingError),
		runtime.WithMetadata(clientCert),
		// By default the library maps headers to any metadata, and metadata to headers. It always
		// passes Authorization.
		runtime.WithIncomingHeaderMatcher(drop),
		runtime.WithOutgoingHeaderMatcher(drop),
		runtime.WithOutgoingTrailerMatcher(drop),
		// Otherwise a form could override the method of a POST.
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
}

func (g *gateway) register() error {
	ctx := context.Background()
	if err := sandboxv1.RegisterSandboxServiceHandlerClient(ctx, g.mux, g.sandboxes); err != nil {
		return err
	}
	if err := sandboxv1.RegisterSnapshotServiceHandlerClient(ctx, g.mux, g.snapshots); err != nil {
		return err
	}
	if err := sandboxv1.RegisterHistoryServiceHandlerClient(ctx, g.mux, g.history); err != nil {
		return err
	}
	if err := sandboxv1.RegisterBoardServiceHandlerClient(ctx, g.mux, g.boards); err != nil {
		return err
	}
	if err := sandboxv1.RegisterExportServiceHandlerClient(ctx, g.mux, g.exports); err != nil {
		return err
	}
	return sandboxv1.RegisterCodebaseServiceHandlerClient(ctx, g.mux, g.codebases)
}

// call returns the context of the call for r, with the credentials of r as metadata.
func (g *gateway) call(r *http.Request, method string) (context.Context, error) {
	return runtime.AnnotateContext(r.Context(), g.mux, r, method)
}

func clientCert(_ context.Context, r *http.Request) metadata.MD {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return metadata.Pairs(ClientCertKey, string(r.TLS.VerifiedChains[0][0].Raw))
}
