// Package remote reaches a server: Client makes the calls of sandbox.v1
// (api/sandbox/v1), and Backend does with them what the verbs ask for. The Go client
// brings changes back by it (BringBack).
//
// It prints nothing. An error has the kind and the text that the server gave it; where
// the server cannot be reached, or does not let us in, the text says what to do. Calls end
// with their context. A server that falls silent is noticed.
package remote

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/endpoint/dial"
)

// patience is how long a server may take to let us in.
const patience = 10 * time.Second

// Client is a connection to a server. It may be used concurrently.
type Client struct {
	at        endpoint.Endpoint
	conn      *grpc.ClientConn
	greeter   *greeter // nil on a connection of the caller's
	codebases sandboxv1.CodebaseServiceClient
	sandboxes sandboxv1.SandboxServiceClient
	snapshots sandboxv1.SnapshotServiceClient
	history   sandboxv1.HistoryServiceClient
	boards    sandboxv1.BoardServiceClient
	exports   sandboxv1.ExportServiceClient
	kept      keptPaths
}

// Dial connects to the server at an endpoint. Errors: Unavailable if no server
// can be spoken with there; NotFound, Denied and Invalid for the files of TLS.
func Dial(ctx context.Context, at endpoint.Endpoint) (*Client, error) {
	c, err := Open(at)
	if err != nil {
		return nil, err
	}
	if err := c.greeter.greet(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Open is a client that connects with its first call, whose error is that of Dial if it
// cannot. So what no server can do is refused without one. Errors: NotFound, Denied and
// Invalid for the files of TLS.
func Open(at endpoint.Endpoint) (*Client, error) {
	conn, settings, err := dial.Connect(at)
	if err != nil {
		return nil, err
	}
	g := &greeter{ClientConn: conn, at: at, settings: settings}
	c := over(g, conn, at)
	c.greeter = g
	return c, nil
}

// Over is a client on a connection to the server at an endpoint. Close ends the
// connection.
func Over(conn *grpc.ClientConn, at endpoint.Endpoint) *Client { return over(conn, conn, at) }

func over(calls grpc.ClientConnInterface, conn *grpc.ClientConn, at endpoint.Endpoint) *Client {
	return &Client{
		at: at, conn: conn,
		codebases: sandboxv1.NewCodebaseServiceClient(calls), sandboxes: sandboxv1.NewSandboxServiceClient(calls),
		snapshots: sandboxv1.NewSnapshotServiceClient(calls), history: sandboxv1.NewHistoryServiceClient(calls),
		boards: sandboxv1.NewBoardServiceClient(calls), exports: sandboxv1.NewExportServiceClient(calls),
	}
}

// greeter is a connection that finds out before the first call whether a server can be
// spoken with.
type greeter struct {
	*grpc.ClientConn
	at       endpoint.Endpoint
	settings *tls.Config
	once     sync.Once
	err      error
}

// Invoke is a call with one answer.
func (g *greeter) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	if err := g.greet(ctx); err != nil {
		return err
	}
	return g.ClientConn.Invoke(ctx, method, args, reply, o...)
}

// NewStream is a call with a stream.
func (g *greeter) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, o ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := g.greet(ctx); err != nil {
		return nil, err
	}
	return g.ClientConn.NewStream(ctx, d, method, o...)
}

func (g *greeter) greet(ctx context.Context) error {
	g.once.Do(func() { g.err = g.ask(ctx) })
	return g.err
}

// ask asks for what needs no token, so that what stands between us and the
// server is told from what it says.
func (g *greeter) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := healthv1.NewHealthClient(g.ClientConn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err == nil || status.Code(err) == codes.Unimplemented { // a server may have nothing to say on that
		return nil
	}
	if g.settings != nil {
		if refusal := shakeHands(ctx, g.at, g.settings); refusal != nil {
			err = refusal
		}
	}
	return unreachable(g.at, err)
}

// shakeHands makes a TLS connection and returns why the server does not want
// it, nil if it does. A server that refuses our certificate says so after the
// handshake (RFC 8446, section 4.4.2.4): who has written something by then, as
// gRPC has, may find the connection broken before it reads that.
func shakeHands(ctx context.Context, at endpoint.Endpoint, settings *tls.Config) error {
	settings = settings.Clone()
	settings.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", at.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, bounded := ctx.Deadline(); bounded {
		if err := conn.SetReadDeadline(deadline); err != nil {
			return err
		}
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
