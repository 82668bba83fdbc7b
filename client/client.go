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

// Client is a connection to one server. The caller closes it.
type Client struct {
	at        endpoint.Endpoint // of the server
	closed    atomic.Bool
	sameHost  bool   // the server sees this host's files
	home      string // the state directory, if the client found or started this user's own server; else ""
	settings  *settings
	conn      *grpc.ClientConn
	sandboxes sandboxv1.SandboxServiceClient
	snapshots sandboxv1.SnapshotServiceClient
	codebases sandboxv1.CodebaseServiceClient
	history   sandboxv1.HistoryServiceClient
	boards    sandboxv1.BoardServiceClient
	exports   sandboxv1.ExportServiceClient
}

// New returns a client. With an endpoint it connects at the first call. Errors: ErrInvalid for
// invalid options; ErrUnavailable if this user's server cannot be started.
func New(ctx context.Context, options ...Option) (*Client, error) {
	return newClient(ctx, collect(options))
}

// findPatience limits the search for this user's server.
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
		// A connection keeps this user's server running. If the server was just ending, find or
		// start another.
		if !found.own || isReady(ctx, conn) {
			return &Client{
				at: found.at, sameHost: found.sameHost, home: found.home, settings: o, conn: conn,
				sandboxes: sandboxv1.NewSandboxServiceClient(conn), codebases: sandboxv1.NewCodebaseServiceClient(conn),
				snapshots: sandboxv1.NewSnapshotServiceClient(conn),
				history:   sandboxv1.NewHistoryServiceClient(conn),
				boards:    sandboxv1.NewBoardServiceClient(conn),
				exports:   sandboxv1.NewExportServiceClient(conn),
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

// isReady reports whether the connection is established within a short time.
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

// notStarted converts the error of finding or starting this user's own server.
func notStarted(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && errdefs.Is(err, errdefs.Canceled) {
		return failure("start server", err.Error(), over)
	}
	return local("start server", err)
}

// server is a server that was found or named.
type server struct {
	at       endpoint.Endpoint
	own      bool // it was found or started: if it ends, another can be found
	sameHost bool // the server sees this host's files
	home     string
}

// server finds the server and its credentials.
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
		if !utf8.ValidString(dir) { // the server's addresses are sent as UTF-8
			return found, failure("connect", "state directory "+vpath.Quote(dir)+": the path is not UTF-8: set AGENTFENSE_HOME", ErrInvalid)
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

// maxTokenBytes limits the file of a token.
const maxTokenBytes = 64 << 10

// findToken returns the token for the server. own is the token file of this user's own server, else
// "".
func (s *settings) findToken(own string) (string, error) {
	named := os.Getenv("AGENTFENSE_TOKEN_FILE")
	file := first(named, own)
	if token := first(s.token, os.Getenv("AGENTFENSE_TOKEN")); token != "" || file == "" {
		return token, nil
	}
	text, err := safefs.ReadNamed(file, maxTokenBytes)
	if named == "" && errors.Is(err, os.ErrNotExist) { // a server without a token file
		return "", nil
	}
	if err != nil {
		return "", invalid("read token", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Endpoint returns the server's endpoint.
func (c *Client) Endpoint() string { return c.at.String() }

// Close closes the connection; running and later calls fail with ErrPrecondition. Sandboxes keep
// running. A second Close does nothing.
func (c *Client) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	return c.conn.Close()
}

// pages yields the entries of all pages of a listing.
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
