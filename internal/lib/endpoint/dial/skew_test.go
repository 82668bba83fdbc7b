package dial

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/apiversion"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
)

// other is a server of another version, which notes what reaches it.
type other struct {
	sandboxv1.UnimplementedCodebaseServiceServer
	sandboxv1.UnimplementedSandboxServiceServer
	reached []string
}

func (o *other) GetSandbox(context.Context, *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	o.reached = append(o.reached, "get")
	return &sandboxv1.Sandbox{}, nil
}

func (o *other) CreateSandbox(_ context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	o.reached = append(o.reached, "create")
	if r.Name == "refused" {
		return nil, status.Error(codes.Unimplemented, "CreateSandboxRequest has no field 100")
	}
	return &sandboxv1.Sandbox{}, nil
}

// serve starts the server, which says level of itself where that is not "", and
// returns a client of it.
func (o *other) serve(t *testing.T, level string) sandboxv1.SandboxServiceClient {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if level != "" {
			if err := grpc.SetHeader(ctx, metadata.Pairs(apiversion.Header, level)); err != nil {
				return nil, err
			}
		}
		return handle(ctx, request)
	}))
	sandboxv1.RegisterSandboxServiceServer(server, o)
	if level != "" {
		healthv1.RegisterHealthServer(server, health.NewServer())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, _, err := Connect(endpoint.Endpoint{Unix: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return sandboxv1.NewSandboxServiceClient(conn)
}

func get(ctx context.Context, c sandboxv1.SandboxServiceClient) error {
	_, err := c.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: "sb"})
	return err
}

func create(name string, of sandboxv1.PatternType) func(context.Context, sandboxv1.SandboxServiceClient) error {
	return func(ctx context.Context, c sandboxv1.SandboxServiceClient) error {
		_, err := c.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
			Name: name, Permissions: []*sandboxv1.PermissionRule{{Pattern: "**", Type: of}},
		})
		return err
	}
}

func diff(ctx context.Context, c sandboxv1.SandboxServiceClient) error {
	_, err := c.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: "sb"})
	return err
}

func attach(ctx context.Context, c sandboxv1.SandboxServiceClient) error {
	s, err := c.Attach(ctx)
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

func stream(ctx context.Context, c sandboxv1.SandboxServiceClient) error {
	_, err := c.ExecStream(ctx, &sandboxv1.ExecRequest{Detach: true})
	return err
}

func TestAServerOfAnotherVersion(t *testing.T) {
	const glob, auto = sandboxv1.PatternType_PATTERN_TYPE_GLOB, sandboxv1.PatternType_PATTERN_TYPE_AUTO
	for _, tt := range []struct {
		name, level string
		call        func(context.Context, sandboxv1.SandboxServiceClient) error
		says        string // "" for a call that is to succeed
		reached     int
	}{
		{name: "not agentfense's: a call that it knows", call: get, reached: 1},
		{name: "not agentfense's: a request that it knows", call: create("", glob), reached: 1},
		{name: "not agentfense's: a field of ours", call: create("mine", glob), says: "older than this program, whose API level is 1: name: it would ignore that; upgrade agentfense there"},
		{name: "not agentfense's: a value of ours", call: create("", auto), says: "type: it would ignore that"},
		{name: "not agentfense's: a field of ours in a stream", call: stream, says: "detach: it would ignore that"},
		{name: "not agentfense's: a call of ours", call: diff, says: "older than this program"},
		{name: "not agentfense's: a stream of ours", call: attach, says: "older than this program"},
		{name: "the same: a field of ours", level: "1-1", call: create("mine", glob), reached: 1},
		{name: "older: a field that it refuses", level: "1-1", call: create("refused", glob), says: "older than this program, whose API level is 1: CreateSandboxRequest has no field 100", reached: 1},
		{name: "newer, and still fit for us", level: "1-7", call: create("mine", glob), reached: 1},
		{name: "newer, without a call of ours", level: "1-7", call: diff, says: "newer than this program, whose API level is 1: method Diff not implemented; upgrade this program"},
		{name: "newer, and fit no more", level: "2-7", call: get, says: "its API levels are 2-7; upgrade this program"},
		{name: "newer, and fit no more: a stream", level: "2-7", call: attach, says: "upgrade this program"},
		{name: "what is no level", level: "1.0", call: get, says: `unknown API level "1.0": upgrade this program`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := new(other)
			c := o.serve(t, tt.level)
			for range 2 { // the second time without asking
				o.reached = nil
				err := tt.call(t.Context(), c)
				if want := map[bool]codes.Code{true: codes.OK, false: codes.Unimplemented}[tt.says == ""]; status.Code(err) != want || !strings.Contains(status.Convert(err).Message(), tt.says) {
					t.Errorf("got %v, want %s with %q", err, want, tt.says)
				}
				if len(o.reached) != tt.reached {
					t.Errorf("%q reached it, want %d calls", o.reached, tt.reached)
				}
			}
		})
	}
}

func TestAServerThatNeverAnswers(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, _, err := Connect(endpoint.Endpoint{Unix: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	g := newNegotiator("there")
	g.patience = 10 * time.Millisecond
	if err := g.meet(t.Context(), conn); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the server at there does not answer within 10ms") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.meet(ctx, conn); status.Code(err) != codes.Canceled {
		t.Errorf("of a call that has ended: %v", err)
	}
}
