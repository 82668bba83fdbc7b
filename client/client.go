package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/endpoint/dial"
	"github.com/agentfense/agentfense/internal/lib/endpoint/localserver"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/statedir"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// Client speaks to one server. Close ends it.
type Client struct {
	at        endpoint.Endpoint // where the server is
	closed    atomic.Bool
	sameHost  bool   // it is known to see this host's files
	home      string // the state directory of this user's own server that was found, or started; else ""
	settings  *settings
	conn      *grpc.ClientConn
	sandboxes sandboxv1.SandboxServiceClient
	codebases sandboxv1.CodebaseServiceClient
}

// New returns a client. A server that is named is called with the first call.
// Errors: ErrInvalid for options that do not fit; ErrUnavailable if this user's
// server cannot be started.
func New(ctx context.Context, options ...Option) (*Client, error) {
	return newClient(ctx, collect(options))
}

// findPatience bounds the search for this user's server.
const findPatience = time.Minute

func newClient(ctx context.Context, o *settings) (*Client, error) {
	for limit := time.Now().Add(findPatience); ; {
		found, err := o.server(ctx)
		if err != nil {
			return nil, err
		}
		conn, _, err := dial.Connect(found.at, grpc.WithChainUnaryInterceptor(bounded), grpc.WithDefaultServiceConfig(again))
		if err != nil {
			return nil, invalid("connect", err)
		}
		// A connection keeps a server of one's own. One that was just ending is
		// looked for again.
		if !found.own || isReady(ctx, conn) {
			return &Client{
				at: found.at, sameHost: found.sameHost, home: found.home, settings: o, conn: conn,
				sandboxes: sandboxv1.NewSandboxServiceClient(conn), codebases: sandboxv1.NewCodebaseServiceClient(conn),
			}, nil
		}
		conn.Close()
		if err := ctx.Err(); err != nil {
			return nil, failure("connect", err.Error(), err)
		}
		if time.Now().After(limit) {
			return nil, failure("connect", fmt.Sprintf("the server at %s does not answer within %s", found.at, findPatience), ErrUnavailable)
		}
	}
}

func invalid(operation string, err error) error {
	return failure(operation, err.Error(), ErrInvalid, err)
}

// isReady reports whether there is a connection within a moment.
func isReady(ctx context.Context, conn *grpc.ClientConn) bool {
	const moment = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	for conn.Connect(); ; {
		state := conn.GetState()
		if state == connectivity.Ready || !conn.WaitForStateChange(ctx, state) {
			return state == connectivity.Ready
		}
	}
}

// notStarted is why this user's own server was neither found nor started.
func notStarted(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && errdefs.Is(err, errdefs.Canceled) {
		return failure("start server", err.Error(), over)
	}
	return local("start server", err)
}

// server is one that was found, or is named.
type server struct {
	at       endpoint.Endpoint
	own      bool // it was found, or started: it may be gone, and another be found
	sameHost bool // it is known to see this host's files
	home     string
}

// server finds the server and what is shown to it.
func (s *settings) server(ctx context.Context) (server, error) {
	address := first(s.endpoint, os.Getenv("AGENTFENSE_ENDPOINT"))
	dir, err := statedir.Path(os.Getenv)
	found := server{own: address == ""}
	var own endpoint.LocalServer
	var serves bool
	if found.own {
		if err != nil {
			return found, invalid("connect", err)
		}
		if !utf8.ValidString(dir) { // what the server says of itself is UTF-8
			return found, failure("connect", "state directory "+vpath.Quote(dir)+": its path is no UTF-8: set AGENTFENSE_HOME", ErrInvalid)
		}
		if own, err = localserver.Find(ctx, dir, s.program); err != nil {
			return found, notStarted(ctx, err)
		}
		address, serves = own.Address(), true
	} else if err == nil {
		own, serves = endpoint.FindDefault(dir)
	}
	found.at, err = endpoint.Parse(address, endpoint.Files{
		CA: first(s.ca, os.Getenv("AGENTFENSE_TLS_CA")), Cert: first(s.cert, os.Getenv("AGENTFENSE_TLS_CERT")), Key: first(s.key, os.Getenv("AGENTFENSE_TLS_KEY")),
	})
	if err != nil {
		return found, invalid("connect", err)
	}
	found.sameHost = serves && own.Matches(&found.at)
	if found.sameHost {
		found.at.Guard(own.VerifyListener(dir))
	} else {
		own.TokenFile = ""
	}
	if found.own {
		found.home = dir
	}
	found.at.Token, err = s.findToken(own.TokenFile)
	return found, err
}

// maxTokenBytes bounds a token's file.
const maxTokenBytes = 64 << 10

// findToken is what is shown to the server, whose own file of its token, if it
// is this user's, is own.
func (s *settings) findToken(own string) (string, error) {
	named := os.Getenv("AGENTFENSE_TOKEN_FILE")
	file := first(named, own)
	if token := first(s.token, os.Getenv("AGENTFENSE_TOKEN")); token != "" || file == "" {
		return token, nil
	}
	text, err := safefs.ReadNamed(file, maxTokenBytes)
	if named == "" && errors.Is(err, os.ErrNotExist) { // a server without a token of its own
		return "", nil
	}
	if err != nil {
		return "", invalid("read token", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Endpoint says where the server is.
func (c *Client) Endpoint() string { return c.at.String() }

// Close ends the connection and the calls that are under way. Sandboxes go on.
// Calls end with ErrPrecondition then. A second time does nothing.
func (c *Client) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	return c.conn.Close()
}

// pages yields what all pages of a listing have, the first one asked for with
// an empty token.
func pages[M, T any](page func(token string) ([]M, string, error), convert func(M) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			list, next, err := page(token)
			if err == nil {
				if token, err = stream.NextPage(token, next); err != nil {
					err = local("list", err)
				}
			}
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
			if token == "" {
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
