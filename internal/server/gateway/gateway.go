// Package gateway is the REST face of the server: HTTP and JSON in front of the
// gRPC services.
//
// Each request becomes one call on Options.Conn, a connection to the very
// server that gRPC clients use, so that interceptors, limits and streams are
// the same. Most routes are generated from the API's files; those of uploads,
// downloads and streams, for which JSON is no good, are written here. gateway
// decides nothing: who may do what, and what a path means, is the service's,
// and no file is touched here. docs/rest.md describes the routes.
//
// What a browser sends on behalf of a page of another origin is refused: there
// is no CORS.
//
// Each stream has one goroutine that receives from the service; it ends with
// the request. The request's end, by whichever side, cancels the call.
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

// ClientCertKey is the metadata that carries the DER form of the client's
// certificate, if the connection's TLS verified one. The service believes it
// only from the gateway's own connection, which a network client cannot have.
const ClientCertKey = "agentfense-client-cert-bin"

// Options of New. Only Conn is needed.
type Options struct {
	// Conn leads to the gRPC server. Nobody else has it, see ClientCertKey. Its
	// messages must be as large as the server's may be.
	Conn grpc.ClientConnInterface
	// Admit refuses a caller who may make no call, by the incoming metadata of
	// the context, before the body of a request is read. The peer of the context
	// is the connection's (see Server). Nil: the calls tell.
	Admit func(context.Context) error
	// Ready says why the server does not take work yet, if it does not. Nil: it
	// always does.
	Ready func(context.Context) error
	// Registry is what /metrics shows; the gateway adds its own. Nil: those, and
	// what Go and the host tell of this process.
	Registry *prometheus.Registry
	// Connections is what /metrics tells of all connections. Nil: nothing.
	Connections func() Connections
	Log         *slog.Logger // nil: slog.Default()

	MaxBodyBytes int64         // of a request in JSON; 0: 16 MiB. The service bounds uploads.
	BodyTimeout  time.Duration // the longest silence within a request's body; 0: 30 s
	Heartbeat    time.Duration // between comments in a stream that says nothing; 0: 15 s

	// LoopbackOnly refuses requests to a host name that does not mean this host:
	// without a token, any page could reach the server by a name of its own that
	// resolves to 127.0.0.1.
	LoopbackOnly bool
}

type gateway struct {
	mux       *runtime.ServeMux // the generated routes
	sandboxes sandboxv1.SandboxServiceClient
	codebases sandboxv1.CodebaseServiceClient
	openAPI   []byte
	metrics   http.Handler
	o         Options
}

// New returns the handler of all routes.
// Errors: without a Conn; if the Registry has metrics of the gateway's names.
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

// Server returns a server of h that does not wait for ever: for a request's
// head, or for the next request. Responses may take as long as they like;
// streams do. The caller sets the address, TLS and the log.
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
		runtime.SetQueryParameterParser(&query{}), // for this process: there is one gateway
		runtime.WithErrorHandler(muxError),
		runtime.WithRoutingErrorHandler(routingError),
		runtime.WithMetadata(clientCert),
		// The library would let a request name any metadata, and show all of ours.
		// Authorization passes without being matched.
		runtime.WithIncomingHeaderMatcher(drop),
		runtime.WithOutgoingHeaderMatcher(drop),
		runtime.WithOutgoingTrailerMatcher(drop),
		// A form could otherwise pass for another method than POST.
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
}

func (g *gateway) register() error {
	ctx := context.Background()
	if err := sandboxv1.RegisterSandboxServiceHandlerClient(ctx, g.mux, g.sandboxes); err != nil {
		return err
	}
	return sandboxv1.RegisterCodebaseServiceHandlerClient(ctx, g.mux, g.codebases)
}

// call is the context of the call that r becomes: what r carries for the
// service is in its metadata.
func (g *gateway) call(r *http.Request, method string) (context.Context, error) {
	return runtime.AnnotateContext(r.Context(), g.mux, r, method)
}

func clientCert(_ context.Context, r *http.Request) metadata.MD {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return metadata.Pairs(ClientCertKey, string(r.TLS.VerifiedChains[0][0].Raw))
}
