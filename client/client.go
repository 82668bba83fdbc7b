package client

import (
	"context"
	"errors"
	"iter"
	"os"
	"strings"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/endpoint"
	"github.com/agentfense/agentfense/internal/endpoint/dial"
	"github.com/agentfense/agentfense/internal/statedir"
)

// Client speaks to one server. Close ends it.
type Client struct {
	conn      *grpc.ClientConn
	sandboxes sandboxv1.SandboxServiceClient
	codebases sandboxv1.CodebaseServiceClient
}

// New returns a client. A server that is named is called with the first call.
// Errors: ErrInvalid for options that do not fit; ErrUnavailable if this user's
// server cannot be started.
func New(ctx context.Context, options ...Option) (*Client, error) {
	at, err := collect(options).server(ctx)
	if err != nil {
		return nil, err
	}
	conn, _, err := dial.Connect(at)
	if err != nil {
		return nil, invalid("connect", err)
	}
	return &Client{
		conn:      conn,
		sandboxes: sandboxv1.NewSandboxServiceClient(conn),
		codebases: sandboxv1.NewCodebaseServiceClient(conn),
	}, nil
}

func invalid(operation string, err error) error {
	return &Error{operation, err.Error(), []error{ErrInvalid, err}}
}

// server finds the server and what is shown to it.
func (s *settings) server(ctx context.Context) (endpoint.Endpoint, error) {
	address := first(s.endpoint, os.Getenv("AGENTFENSE_ENDPOINT"))
	dir, err := statedir.Path(os.Getenv)
	if address == "" {
		if err == nil {
			address, err = ownServer(ctx, dir, s.program)
		}
		if err != nil {
			return endpoint.Endpoint{}, err
		}
	}
	at, err := endpoint.Parse(address, endpoint.Files{
		CA: first(s.ca, os.Getenv("AGENTFENSE_TLS_CA")), Cert: first(s.cert, os.Getenv("AGENTFENSE_TLS_CERT")), Key: first(s.key, os.Getenv("AGENTFENSE_TLS_KEY")),
	})
	if err != nil {
		return at, invalid("connect", err)
	}
	at.Token = first(s.token, os.Getenv("AGENTFENSE_TOKEN"))
	if own, serves := endpoint.FindOwn(dir); at.Token == "" && serves && own.Meet(&at) {
		text, err := os.ReadFile(own.TokenFile)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return at, invalid("read token", err)
		}
		at.Token = strings.TrimSpace(string(text))
	}
	return at, nil
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
