package client

import (
	"context"
	"crypto/tls"
	"iter"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Options are how a server is reached. The zero value is this user's server.
type Options struct {
	// Endpoint is host:port or unix:///path; empty: $AGENTFENSE_ENDPOINT, else
	// where this user's own server runs, else localhost:9000.
	Endpoint string
	// Token is shown with each call; empty: $AGENTFENSE_TOKEN, else that of this
	// user's own server, which is shown to that server alone.
	Token string
	// TLS, if not nil, is used for the connection.
	TLS *tls.Config
}

// defaultEndpoint is where a server listens that was told nothing else.
const defaultEndpoint = "localhost:9000"

// Client speaks to one server. Close ends it.
type Client struct {
	conn      *grpc.ClientConn
	sandboxes sandboxv1.SandboxServiceClient
	codebases sandboxv1.CodebaseServiceClient
}

// New returns a client. It connects with the first call.
// Errors: ErrInvalid for an endpoint that is none.
func New(o Options) (*Client, error) {
	own := findOwnServer()
	endpoint := first(o.Endpoint, os.Getenv("AGENTFENSE_ENDPOINT"), own.GRPC, defaultEndpoint)
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
	token := first(o.Token, os.Getenv("AGENTFENSE_TOKEN"))
	if token == "" && own.isAt(endpoint, o.TLS != nil) {
		token = own.token()
		if o.TLS == nil { // else its certificate tells
			endpoint = own.GRPC
		}
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{token, o.TLS != nil}))
	}
	conn, err := grpc.NewClient(endpoint, options...)
	if err != nil {
		return nil, &Error{"connect to " + endpoint, err.Error(), []error{ErrInvalid}}
	}
	return &Client{
		conn:      conn,
		sandboxes: sandboxv1.NewSandboxServiceClient(conn),
		codebases: sandboxv1.NewCodebaseServiceClient(conn),
	}, nil
}

// Close ends the connection and the calls that are under way. Sandboxes go on.
func (c *Client) Close() error { return c.conn.Close() }

// pages yields what all pages of a listing have, the first one asked for with
// an empty token.
func pages[M, T any](page func(token string) ([]M, string, error), convert func(M) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			list, next, err := page(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range list {
				if !yield(convert(one), nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// bearer shows a token with each call. Without TLS it goes only where the
// program said, or to this host.
type bearer struct {
	token  string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }
