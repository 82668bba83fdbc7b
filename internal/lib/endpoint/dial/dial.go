// Package dial connects to the server at an endpoint, by gRPC. It is separate from endpoint because
// the program that runs for each sandbox must not link gRPC.
package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/agentfense/agentfense/internal/lib/apiversion"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// silence is how long a connection may be idle before the client sends a ping, and how long the
// answer may take. The server allows one ping in five seconds.
const silence = 10 * time.Second

// Connect returns a connection, which connects at the first call, and its TLS settings, nil without
// TLS. Calls to a server of an incompatible version fail with UNIMPLEMENTED. Errors: Invalid for
// the endpoint and its files.
func Connect(at endpoint.Endpoint, more ...grpc.DialOption) (*grpc.ClientConn, *tls.Config, error) {
	secure := insecure.NewCredentials()
	var settings *tls.Config
	if at.TLS {
		var err error
		if settings, err = tlsConfig(at); err != nil {
			return nil, nil, err
		}
		secure = credentials.NewTLS(settings)
	}
	negotiator := newNegotiator(at.String())
	options := append([]grpc.DialOption{
		grpc.WithUnaryInterceptor(negotiator.unary),
		grpc.WithStreamInterceptor(negotiator.stream),
		grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(apiversion.MaxAnswerBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silence, Timeout: silence}),
	}, more...)
	if at.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{at.Token, at.TLS}))
	}
	target := "dns:///" + at.Address()
	switch {
	case at.Unix != "":
		target = "passthrough:///localhost"
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialSocket(ctx, at.Unix) }))
	case at.IsLocal():
		options = append(options, grpc.WithNoProxy())
	}
	if at.VerifyListener != nil {
		options = append(options, grpc.WithContextDialer(dialGuarded(at.VerifyListener)))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, nil, errdefs.New(errdefs.Invalid, "endpoint %s: %w", at, err)
	}
	return conn, settings, nil
}

// dialGuarded connects only if verify names the same listener before and after.
func dialGuarded(verify func() (string, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		before, err := verify()
		if err != nil {
			return nil, err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		after, err := verify()
		if err == nil && after != before {
			err = errdefs.New(errdefs.Unavailable, "%s: another process took the port", address)
		}
		if err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// bearer sends a token with each call.
type bearer struct {
	token  string
	secure bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity is false only for this host (see endpoint.Parse).
func (b bearer) RequireTransportSecurity() bool { return b.secure }

// maxPEMBytes limits a file of certificates; the host's whole bundle fits.
const maxPEMBytes = 4 << 20

func tlsConfig(at endpoint.Endpoint) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: at.Host}
	if at.CA != "" {
		text, err := safefs.ReadNamed(at.CA, maxPEMBytes)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "--tls-ca %s: %w", at.CA, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, errdefs.New(errdefs.Invalid, "--tls-ca %s: no certificate found", at.CA)
		}
	}
	if at.Cert == "" {
		return c, nil
	}
	cert, err := safefs.ReadNamed(at.Cert, maxPEMBytes)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--tls-cert %s: %w", at.Cert, err)
	}
	key, err := safefs.ReadNamed(at.Key, maxPEMBytes)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--tls-key %s: %w", at.Key, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--tls-cert, --tls-key: %w", err)
	}
	// Send it even if the server does not list its authority: the server then reports the error.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return c, nil
}
