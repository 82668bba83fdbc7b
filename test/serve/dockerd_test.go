package serve_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// betweenDocker stands between a server and a docker daemon, and has the daemon
// killed when a request comes by.
type betweenDocker struct {
	*testenv.Daemon
	transport *http.Transport

	mu sync.Mutex
	at *regexp.Regexp // nil: nowhere
}

// arm names the request before which the daemon is killed, as "METHOD PATH".
func (b *betweenDocker) arm(at string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = regexp.MustCompile(at)
}

func (b *betweenDocker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	if b.at != nil && b.at.MatchString(r.Method+" "+r.URL.Path) {
		b.at = nil
		b.Kill()
	}
	b.mu.Unlock()
	// Whole before it is passed on: the daemon may answer before it has read it, and
	// the body is closed then while the transport still reads it.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	proxy := httputil.ReverseProxy{
		Transport: b.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "docker"})
		},
		// As a daemon that is gone: no answer at all.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	proxy.ServeHTTP(w, r)
}

// startMortalDocker is startDocker with a daemon that can be killed.
func startMortalDocker(t *testing.T) (*server, *betweenDocker) {
	t.Helper()
	testenv.FUSE(t)
	testenv.Docker(t)
	b := &betweenDocker{Daemon: testenv.NewDaemon(t)}
	// It keeps connections: the daemon does not read every body before it answers
	// and, asked to, closes.
	b.transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(b.Host, "unix://"))
	}}
	t.Cleanup(b.transport.CloseIdleConnections)
	socket := filepath.Join(t.TempDir(), "docker")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	must(t, l, err)
	proxy := &http.Server{Handler: b, ReadHeaderTimeout: time.Minute}
	go func() { _ = proxy.Serve(l) }() // until it is closed
	t.Cleanup(func() { proxy.Close() })
	return start(t, "AGENTFENSE_RUNTIME_TYPE=docker", "AGENTFENSE_RUNTIME_DOCKER_HOST=unix://"+socket,
		"AGENTFENSE_RUNTIME_DOCKER_DEFAULT_IMAGE="+testenv.DockerImage), b
}

// nothingOf fails the test if docker or the host still has something of the
// sandboxes.
func (s *server) nothingOf(b *betweenDocker) {
	s.t.Helper()
	if left, n := s.leftovers(), containers(s.t, b.Host); len(left) > 0 || n > 0 {
		s.t.Errorf("left: %q and %d containers", left, n)
	}
}

func TestADockerdKilledWhileASandboxStarts(t *testing.T) {
	s, b := startMortalDocker(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	for _, at := range []string{"GET .*/info$", "POST .*/create$", "POST .*/start$", "GET .*/containers/.*/json$"} {
		made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything})
		id := must(t, made, err).Id
		b.arm(at)
		_, err = s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
		wantCode(t, err, codes.FailedPrecondition, "docker")
		got, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
		if box := must(t, got, err); box.Status != sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR || !strings.Contains(box.StatusReason, "docker") {
			t.Errorf("killed at %q: status %s, %q", at, box.Status, box.StatusReason)
		}
		b.Start()
		started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
		must(t, started, err)
		if got := s.exec(id, "cat f"); got != "old\n" {
			t.Errorf("killed at %q: started again it shows %q", at, got)
		}
		empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
		must(t, empty, err)
		s.nothingOf(b)
	}
}

func TestADockerdKilledWhileACommandRuns(t *testing.T) {
	s, b := startMortalDocker(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	stream, err := s.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: id, Command: "echo ready; while [ ! -e go ]; do sleep 0.01; done; echo new > f; cat f",
	})
	must(t, stream, err)
	if m, err := stream.Recv(); err != nil || string(m.Data) != "ready\n" {
		t.Fatalf("%v, %v", m, err)
	}
	b.Kill()
	s.upload(cb, "go", "")
	m, err := stream.Recv()
	if err != nil || string(m.Data) != "new\n" {
		t.Errorf("without the daemon the command wrote %v, %v", m, err)
	}
	if m, err = stream.Recv(); err != nil || m.GetExitCode() != 0 || s.have(cb, "f") != "new\n" {
		t.Errorf("without the daemon the command ended with %v, %v; the codebase has %q", m, err, s.have(cb, "f"))
	}
	destroy := func() error {
		_, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
		return err
	}
	wantCode(t, destroy(), codes.FailedPrecondition, "docker")
	got, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
	if box := must(t, got, err); box.Status == sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING {
		t.Errorf("status %s", box.Status)
	}
	b.Start()
	if err := destroy(); err != nil {
		t.Error(err)
	}
	s.nothingOf(b)
}

func TestADockerdKilledWhileASandboxIsDestroyed(t *testing.T) {
	s, b := startMortalDocker(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	s.exec(id, "echo new > f")
	destroy := func() error {
		_, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
		return err
	}
	b.arm("DELETE .*/containers/")
	wantCode(t, destroy(), codes.FailedPrecondition, "docker")
	if _, err := os.Stat(filepath.Join(s.home, "sandboxes", id)); err != nil {
		t.Errorf("the sandbox whose container is still there is gone: %v", err)
	}
	b.Start()
	if err := destroy(); err != nil {
		t.Error(err)
	}
	s.nothingOf(b)
	if got := s.have(cb, "f"); got != "new\n" {
		t.Errorf("the codebase has %q", got)
	}
}
