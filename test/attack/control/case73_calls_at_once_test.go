package control_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/test/harness"
)

// One owner has the server keep a file open for each download that it does not
// take. However many it asks for, others go on.
func TestCallsAtOnce(t *testing.T) {
	box := harness.New(t, binary, nil)
	s, _ := serveWithFew(t, box)
	w := newWorker(t, s)
	mallory := s.as(box, "mallory")
	cb := mallory.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id")
	fill := newFiller(t, mallory)
	if err := fill.upload(cb, "f", 4<<20); err != nil {
		t.Fatal(err)
	}
	refused := 0
	var held []grpc.ServerStreamingClient[sandboxv1.FileChunk]
	// The windows stay as small as they are at first.
	conn := mallory.dial(t, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<20))
	slow := sandboxv1.NewCodebaseServiceClient(conn)
	for i := range 700 {
		down, err := slow.DownloadFile(fill.ctx, &sandboxv1.DownloadFileRequest{CodebaseId: cb, FilePath: "f"})
		if err == nil {
			_, err = down.Header()
		}
		if err == nil {
			if _, err = down.Recv(); err == nil {
				held = append(held, down)
				continue
			}
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("download %d: %v", i, err)
		}
		refused++
	}
	if len(held) == 0 || refused == 0 {
		t.Errorf("%d downloads at once, %d refused", len(held), refused)
	}
	w.works(t)
}

// REST passes the calls of all on by one connection of its own. Those of one owner
// that last do not keep others waiting.
func TestCallsAtOnceByREST(t *testing.T) {
	t.Setenv("AGENTFENSE_LIMITS_CONNECTIONS_PER_PEER", "4000")
	t.Setenv("AGENTFENSE_LIMITS_CALLS_PER_OWNER", "2000")
	box := harness.New(t, binary, nil)
	s := serve(t, box)
	mallory := s.as(box, "mallory")
	cb := mallory.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id")
	sb := mallory.must(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q}`, cb), "id")
	ctx, leave := context.WithTimeout(t.Context(), 3*patience)
	defer leave()
	for range 1030 { // more than a connection has streams
		defer mallory.open(ctx, t, "/sandboxes/"+sb+"/audit?follow=true").Close()
	}
	soon, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.open(soon, t, "/codebases").Close()
}

// open asks and returns the body of the answer, which must be a success.
func (s *server) open(ctx context.Context, t *testing.T, path string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		t.Fatalf("%s: %s", path, answer.Status)
	}
	return answer.Body
}

// dial opens a connection of its own.
func (s *server) dial(t *testing.T, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Whoever has no token may ask how the server is, and cannot keep others from it.
func TestHealthIsForEverybody(t *testing.T) {
	s := serve(t, harness.New(t, binary, nil))
	ask := func() healthv1.HealthClient { return healthv1.NewHealthClient(s.dial(t)) }
	hostile := ask()
	for range 200 {
		watch, err := hostile.Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err == nil {
			_, _ = watch.Recv() // it may be refused, or be ended for another
		}
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answer, err := ask().Check(ctx, &healthv1.HealthCheckRequest{})
		cancel()
		if err != nil || answer.Status != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%v, %v", answer, err)
		}
	}
}
