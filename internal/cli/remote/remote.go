// Package remote reaches a server for the command line, and for an apply of the Go
// client: the calls of sandbox.v1 (api/sandbox/v1), in the words of package backend.
//
// It decides nothing and prints nothing. An error has the kind and the text
// that the server gave it; where the server cannot be reached, or does not let
// us in, the text says what to do. Calls end with their context. A server that
// falls silent is noticed.
package remote

import (
	"context"
	"crypto/tls"
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
	codebases sandboxv1.CodebaseServiceClient
	sandboxes sandboxv1.SandboxServiceClient
}

// Dial connects to the server at an endpoint. Errors: Unavailable if no server
// can be spoken with there; NotFound, Denied and Invalid for the files of TLS.
func Dial(ctx context.Context, at endpoint.Endpoint) (*Client, error) {
	conn, settings, err := dial.Connect(at)
	if err != nil {
		return nil, err
	}
	c := Over(conn, at)
	if err := c.greet(ctx, settings); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Over is a client on a connection to the server at an endpoint. Close ends the
// connection.
func Over(conn *grpc.ClientConn, at endpoint.Endpoint) *Client {
	return &Client{
		at: at, conn: conn,
		codebases: sandboxv1.NewCodebaseServiceClient(conn), sandboxes: sandboxv1.NewSandboxServiceClient(conn),
	}
}

// greet asks for what needs no token, so that what stands between us and the
// server is told from what it says.
func (c *Client) greet(ctx context.Context, settings *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err == nil || status.Code(err) == codes.Unimplemented { // a server may have nothing to say on that
		return nil
	}
	if settings != nil {
		if refusal := shakeHands(ctx, c.at, settings); refusal != nil {
			err = refusal
		}
	}
	return unreachable(c.at, err)
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
