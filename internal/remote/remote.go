// Package remote reaches a server for the command line: the calls of sandbox.v1
// (api/sandbox/v1), in the words of package control.
//
// It decides nothing and prints nothing. An error has the kind and the text
// that the server gave it; where the server cannot be reached, or does not let
// us in, the text says what to do. Calls end with their context. A server that
// falls silent is noticed within silence.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"math"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
)

// patience is how long a server may take to let us in.
const patience = 10 * time.Second

// silence is how long a connection may be silent before the server is asked
// whether it is there, and again how long it may take to answer. The server
// allows one such question in five seconds.
const silence = 10 * time.Second

// Client is a connection to a server. It may be used concurrently.
type Client struct {
	at        control.Endpoint
	conn      *grpc.ClientConn
	codebases sandboxv1.CodebaseServiceClient
	sandboxes sandboxv1.SandboxServiceClient
}

// Dial connects to the server at an endpoint. Errors: Unavailable if no server
// can be spoken with there; NotFound, Denied and Invalid for the files of TLS.
func Dial(ctx context.Context, at control.Endpoint) (*Client, error) {
	secure := insecure.NewCredentials()
	var settings *tls.Config
	if at.TLS {
		var err error
		if settings, err = tlsConfig(at); err != nil {
			return nil, err
		}
		secure = credentials.NewTLS(settings)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silence, Timeout: silence}),
	}
	if at.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{at.Token, at.TLS}))
	}
	target := "dns:///" + at.Address()
	switch {
	case at.Unix != "":
		target = "unix://" + at.Unix
	case at.IsLocal():
		options = append(options, grpc.WithNoProxy())
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "endpoint %s: %w", at, err)
	}
	c := &Client{
		at: at, conn: conn,
		codebases: sandboxv1.NewCodebaseServiceClient(conn), sandboxes: sandboxv1.NewSandboxServiceClient(conn),
	}
	if err := c.greet(ctx, settings); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// greet asks for what needs no token, so that what stands between us and the
// server is told from what it says.
func (c *Client) greet(ctx context.Context, settings *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err == nil {
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
func shakeHands(ctx context.Context, at control.Endpoint, settings *tls.Config) error {
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

// bearer shows a token with each call.
type bearer struct {
	token  string
	secure bool
}

// GetRequestMetadata is credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity is false for this host alone (see ParseEndpoint).
func (b bearer) RequireTransportSecurity() bool { return b.secure }

func tlsConfig(at control.Endpoint) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: at.Host}
	if at.CA != "" {
		text, err := os.ReadFile(at.CA)
		if err != nil {
			return nil, fault.New(fault.Invalid, "--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fault.New(fault.Invalid, "--tls-ca %s: it holds no certificate", at.CA)
		}
	}
	if at.Cert == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(at.Cert, at.Key)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--tls-cert, --tls-key: %w", err)
	}
	// Also one that the server will not take: it then says so.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return c, nil
}
