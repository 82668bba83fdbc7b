package dial

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agentfense/agentfense/internal/lib/apiversion"
)

// patience is how long a server may take for its first answer.
const patience = 20 * time.Second

// negotiator intercepts the calls of a connection. Before the first call it asks the server for its
// API levels. Every mismatch is then UNIMPLEMENTED, with a text that says what to upgrade.
type negotiator struct {
	at       string
	patience time.Duration
	turn     chan struct{} // held by the call that asks

	once   sync.Once
	met    chan struct{}    // closed when levels is set
	levels apiversion.Range // zero for a server of another project
}

type askedFor struct{}

// Uninterrupted returns a context for a call that continues when ctx ends. Only before the call,
// while the server is asked for its version, the end of ctx counts.
func Uninterrupted(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), askedFor{}, ctx)
}

func newNegotiator(at string) *negotiator {
	return &negotiator{at: at, patience: patience, turn: make(chan struct{}, 1), met: make(chan struct{})}
}

// meet asks the server for its levels, once, and refuses a server that is too new.
func (g *negotiator) meet(ctx context.Context, conn *grpc.ClientConn) error {
	if asking, ok := ctx.Value(askedFor{}).(context.Context); ok {
		ctx = asking
	}
	select {
	case <-g.met:
		return g.tooNew()
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	select {
	case <-g.met: // another call has asked meanwhile
		return g.tooNew()
	default:
	}
	limited, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	_, err := healthv1.NewHealthClient(conn).Check(limited, &healthv1.HealthCheckRequest{}) // passes through ask
	select {
	case <-g.met:
		return g.tooNew()
	default:
	}
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		return status.Errorf(codes.Unavailable, "the server at %s does not answer within %s", g.at, g.patience)
	}
	return err
}

// ask makes the health call and reads the header of its answer. An answer without the header is of
// another project's server.
func (g *negotiator) ask(invoke func(...grpc.CallOption) error, options []grpc.CallOption) error {
	var head metadata.MD
	err := invoke(append(options, grpc.Header(&head))...)
	var levels apiversion.Range
	if said := head.Get(apiversion.Header); len(said) > 0 {
		var ok bool
		if levels, ok = apiversion.Parse(said[0]); !ok {
			return status.Errorf(codes.Unimplemented, "the server at %s has the unknown API level %q: upgrade this program", g.at, said[0])
		}
	} else if slices.Contains(noAnswer, status.Code(err)) {
		return err
	}
	g.once.Do(func() {
		g.levels = levels
		close(g.met)
	})
	return err
}

// noAnswer are the statuses of a call that the server did not answer.
var noAnswer = []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted}

func (g *negotiator) tooNew() error {
	if g.levels.Least > apiversion.Level {
		return g.mismatch(fmt.Sprintf("its API levels are %s", g.levels))
	}
	return nil
}

// fit refuses a request that a server of another project would read only in part.
func (g *negotiator) fit(request any) error {
	m, ok := request.(proto.Message)
	if !ok || g.levels != (apiversion.Range{}) {
		return nil
	}
	if addition := apiversion.Addition(m); addition != "" {
		return g.mismatch(fmt.Sprintf("%s: it would ignore that", addition))
	}
	return nil
}

// mismatch returns the error of a mismatch, with what to upgrade.
func (g *negotiator) mismatch(why string) error {
	if g.levels.Level > apiversion.Level {
		return status.Errorf(codes.Unimplemented, "the server at %s is newer than this program, whose API level is %d: %s; upgrade this program", g.at, apiversion.Level, why)
	}
	return status.Errorf(codes.Unimplemented, "the server at %s is older than this program, whose API level is %d: %s; upgrade agentfense there, and restart the server", g.at, apiversion.Level, why)
}

// explain converts the answer of a server that does not know the call or a field.
func (g *negotiator) explain(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return g.mismatch(status.Convert(err).Message())
	}
	return err
}

func (g *negotiator) unary(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if method == healthv1.Health_Check_FullMethodName {
		return g.ask(func(options ...grpc.CallOption) error { return invoke(ctx, method, request, answer, conn, options...) }, options)
	}
	err := g.meet(ctx, conn)
	if err == nil {
		err = g.fit(request)
	}
	if err != nil {
		return err
	}
	return g.explain(invoke(ctx, method, request, answer, conn, options...))
}

func (g *negotiator) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := g.meet(ctx, conn); err != nil {
		return nil, err
	}
	s, err := open(ctx, d, conn, method, options...)
	if err != nil {
		return nil, g.explain(err)
	}
	return explained{s, g}, nil
}

// explained is a stream whose requests and errors the negotiator checks.
type explained struct {
	grpc.ClientStream
	negotiator *negotiator
}

func (s explained) SendMsg(m any) error {
	if err := s.negotiator.fit(m); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

func (s explained) RecvMsg(m any) error { return s.negotiator.explain(s.ClientStream.RecvMsg(m)) }
