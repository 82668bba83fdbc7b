package control_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/test/harness"
)

// patience is longer than any answer takes that comes at all.
const patience = 20 * time.Second

// Who shows no token cannot have the server wait for a request, and keep what
// has come of it: it is refused before.
func TestNothingIsReadOfWhoShowsNoToken(t *testing.T) {
	s := serve(t, harness.New(t, binary, nil))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	conn, err := grpc.NewClient(s.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, method := range []string{sandboxv1.SandboxService_Exec_FullMethodName, sandboxv1.CodebaseService_UploadFiles_FullMethodName} {
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
		if err == nil {
			err = call.RecvMsg(&sandboxv1.ExecResult{}) // nothing was sent
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", method, err)
		}
	}

	holdHealth(ctx, t, conn)
	long := metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat("x", 100<<10))
	if _, err := healthv1.NewHealthClient(conn).Check(long, &healthv1.HealthCheckRequest{}); err == nil {
		t.Error("the head of a call may be of any length")
	}

	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/sb_0123456789abcdef/exec:stream", "/v1/codebases/cb_0123456789abcdef/files/f"} {
		body, never := io.Pipe()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else {
			answer.Body.Close()
			if answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %s", path, answer.Status)
			}
		}
		never.Close()
	}
}

// holdHealth asks without a token how the server is, and never says so: that is
// for everybody, but not for any number at once. The oldest gives way.
func holdHealth(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	const places = 64
	var held []grpc.ClientStream
	for range places + 1 {
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, healthv1.Health_Check_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, call)
	}
	if err := held[0].RecvMsg(&healthv1.HealthCheckResponse{}); err == nil || ctx.Err() != nil {
		t.Errorf("the oldest: %v", err)
	}
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("one more: %v", err)
	}
}
