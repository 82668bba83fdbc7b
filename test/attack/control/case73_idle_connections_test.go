package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

// said is what a server logs.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// serveWithFew starts a server that may open few files.
func serveWithFew(t *testing.T, box *harness.Sandbox, env ...string) (*server, *said) {
	t.Helper()
	cmd := box.Command(context.Background(), "serve")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `ulimit -Sn 300 && ulimit -Hn 400 && exec "$0" serve`, box.Binary}
	cmd.Env = append(append(cmd.Env, wire.AnyPorts...), env...)
	log := new(said)
	cmd.Stderr = log
	served, err := wire.Serve(cmd, box.Home)
	s := &server{served, t, box.Home}
	if served != nil {
		t.Cleanup(s.end)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	return s, log
}

// flood opens idle connections, each of which has begun to say something else.
func flood(t *testing.T, network, addr string, n int) []net.Conn {
	t.Helper()
	var all []net.Conn
	for i := range n {
		c, err := net.DialTimeout(network, addr, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { c.Close() })
		begun := []string{"", "G", "GET / HTTP/1.1\r\nHost: x\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01"}
		_, _ = io.WriteString(c, begun[i%len(begun)]) // it may be closed already
		all = append(all, c)
	}
	return all
}

// areClosed waits until the server has closed the connections.
func areClosed(t *testing.T, all []net.Conn) {
	t.Helper()
	for i, c := range all {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of %d is still open", i, len(all))
		}
	}
}

// worker is somebody with a token who works at both faces.
type worker struct {
	s         *server
	ctx       context.Context
	sandboxes sandboxv1.SandboxServiceClient
	sandbox   string
}

func newWorker(t *testing.T, s *server) *worker {
	t.Helper()
	cb := s.must(http.MethodPost, "/codebases", `{"name": "c", "owner_id": "me"}`, "id")
	sb := s.must(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q}`, cb), "id")
	s.must(http.MethodPost, "/sandboxes/"+sb+"/start", "", "id")
	t.Cleanup(func() { s.must(http.MethodPost, "/sandboxes/"+sb+"/stop", "", "id") })
	return &worker{s: s, sandbox: sb, sandboxes: s.connect(t), ctx: metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+s.Token)}
}

func (s *server) connect(t *testing.T) sandboxv1.SandboxServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return sandboxv1.NewSandboxServiceClient(conn)
}

// works runs commands by connections that are there, and by new ones.
func (w *worker) works(t *testing.T) {
	t.Helper()
	for name, client := range map[string]sandboxv1.SandboxServiceClient{"an older connection": w.sandboxes, "a new connection": w.s.connect(t)} {
		ctx, cancel := context.WithTimeout(w.ctx, patience)
		r, err := client.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: w.sandbox, Command: "ulimit -Sn"})
		cancel()
		if err != nil || r.Stdout != "300\n" { // as the server was started
			t.Errorf("%s of gRPC: %v, %v", name, r, err)
		}
	}
	if out := w.s.must(http.MethodPost, "/sandboxes/"+w.sandbox+"/exec", `{"command": "echo runs"}`, "stdout"); out != "runs\n" {
		t.Errorf("REST: %q", out)
	}
	http.DefaultClient.CloseIdleConnections()
	w.s.must(http.MethodGet, "/sandboxes/"+w.sandbox, "", "id")
}

// Whoever reaches the server's addresses can open connections. Far more than the
// server has descriptors keep nobody with a token from working.
func TestIdleConnections(t *testing.T) {
	const each = 700
	t.Run("the strangers are held to their places", func(t *testing.T) {
		s, log := serveWithFew(t, harness.New(t, binary, nil), "AGENTFENSE_LIMITS_FIRST_CALL_TIMEOUT=1h")
		w := newWorker(t, s)
		flood(t, "tcp", s.Addr, each)
		w.works(t)
		flood(t, "tcp", strings.TrimPrefix(s.URL, "http://"), each)
		w.works(t)
		within(t, log.String(), "too many without credentials")
		for line := range strings.Lines(s.page(t, "/metrics")) {
			var n int
			if _, err := fmt.Sscanf(line, `agentfense_connections{credentials="none"} %d`, &n); err == nil && (n == 0 || n > 50) {
				t.Errorf("%d connections without credentials", n)
			}
		}
		within(t, s.page(t, "/metrics"), `agentfense_connections{credentials="none"}`, `agentfense_connections_closed_total{reason="limit"}`)
	})
	t.Run("who makes no call is closed", func(t *testing.T) {
		s, log := serveWithFew(t, harness.New(t, binary, nil), "AGENTFENSE_LIMITS_FIRST_CALL_TIMEOUT=1s")
		w := newWorker(t, s)
		all := flood(t, "tcp", s.Addr, 20)
		all = append(all, flood(t, "tcp", strings.TrimPrefix(s.URL, "http://"), 20)...)
		areClosed(t, all)
		w.works(t)
		within(t, log.String(), "closed for showing no credentials in time")
	})
	t.Run("at a socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		s, _ := serveWithFew(t, harness.New(t, binary, nil), "AGENTFENSE_SERVER_GRPC_ADDR=unix://"+path, "AGENTFENSE_LIMITS_FIRST_CALL_TIMEOUT=2s")
		w := newWorker(t, s)
		all := flood(t, "unix", path, each)
		w.works(t)
		areClosed(t, all)
	})
}

// A limit that the server could not hold is refused.
func TestMoreConnectionsThanFiles(t *testing.T) {
	box := harness.New(t, binary, nil)
	cmd := box.Command(t.Context(), "serve")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `ulimit -n 400 && exec "$0" serve`, box.Binary}
	cmd.Env = append(append(cmd.Env, wire.AnyPorts...), "AGENTFENSE_LIMITS_CONNECTIONS=300")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("it serves")
	}
	within(t, string(out), "limits.connections: 300 needs a limit of 600 open files, but the limit is 400")
}

// A request that trickles in is cut, on a connection without credentials.
func TestSlowHead(t *testing.T) {
	t.Setenv("AGENTFENSE_LIMITS_FIRST_CALL_TIMEOUT", "1s")
	s := serve(t, harness.New(t, binary, nil))
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.URL, "http://"), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if _, err := io.WriteString(c, "x"); err != nil {
			return
		}
	}
	t.Error("it may take as long as it likes")
}

// page reads a page that is for everybody.
func (s *server) page(t *testing.T, path string) string {
	t.Helper()
	answer, err := http.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
