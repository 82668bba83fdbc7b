package boardsocket_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/boardsocket"
)

// served is a socket, and what it was asked to do.
type served struct {
	socket string
	home   string
	admits atomic.Bool
	locked chan api.LockRequest
	server *boardsocket.Server
}

func serve(t *testing.T) *served {
	t.Helper()
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	b := board.Of(home, record.Source{Path: "/source", Ino: 1}, "")
	self := board.Holder{ID: "sb_1", Name: "me", PID: 1}
	dir := t.TempDir()
	l, err := boardsocket.Listen(dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{socket: filepath.Join(dir, "s"), home: home.Dir(), locked: make(chan api.LockRequest, 1)}
	s.admits.Store(true)
	s.server = boardsocket.Serve(l, boardsocket.Options{
		Admit: func(*net.UnixConn) error {
			if !s.admits.Load() {
				return errors.New("refused")
			}
			return nil
		},
		Workspace: "/workspace", Self: self, Board: b,
		Locks: func() ([]board.Entry, error) {
			return []board.Entry{{Sandbox: "me", Path: "", Own: true}, {Sandbox: "other", Path: "a/b\\xff"}}, nil
		},
		Lock: func(ctx context.Context, r api.LockRequest) error {
			s.locked <- r
			if r.Wait == 0 {
				return nil
			}
			<-ctx.Done()
			return errdefs.New(errdefs.Canceled, "lock: %w", ctx.Err())
		},
		Unlock: func(context.Context, api.LockRequest) error {
			return errdefs.New(errdefs.Internal, "a secret of the host")
		},
		Post: func(d board.Draft) (board.Message, error) { return b.Post(self, d) },
		Log:  slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = s.server.Close() }) // a test may have closed it
	return s
}

func (s *served) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask makes a request on a connection of its own.
func (s *served) ask(t *testing.T, method, path, body string) (status int, answer string) {
	t.Helper()
	return s.askOn(t, s.dial(t), method, path, body)
}

func (s *served) askOn(t *testing.T, c net.Conn, method, path, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://board"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(c); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

func (s *served) wants(t *testing.T, method, path, body string, status int, answer string) {
	t.Helper()
	if got, text := s.ask(t, method, path, body); got != status || !strings.Contains(text, answer) {
		t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, got, text, status, answer)
	}
}

// TestNoHostPathIsTold makes what the host refuses, of which the error has a path of the host.
func TestNoHostPathIsTold(t *testing.T) {
	s := serve(t)
	if err := os.WriteFile(filepath.Join(s.home, "boards"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/messages", `{"text":"x"}`}, {"GET", "/messages", ""}, {"GET", "/members", ""},
	} {
		status, text := s.ask(t, r.method, r.path, r.body)
		if status < 400 || strings.Contains(text, s.home) || !strings.Contains(text, "its log has the reason") {
			t.Errorf("%s %s: %d %s", r.method, r.path, status, text)
		}
	}
}

// TestRequests checks what reaches the supervisor, and what comes back.
func TestRequests(t *testing.T) {
	s := serve(t)
	s.wants(t, "GET", "/locks", "", 200, `{"locks":[{"sandbox":"me","path":".","mine":true`)
	s.wants(t, "GET", "/locks", "", 200, `{"sandbox":"other","path":"a/b\\xff","mine":false`)
	s.wants(t, "POST", "/lock", `{"paths":["/workspace/x","z","."],"for_seconds":60,"advisory":true}`, 200, `{"locked":3}`)
	if r := <-s.locked; strings.Join(r.Paths, " ") != "x z " || r.For != time.Minute || !r.Advisory || r.Wait != 0 {
		t.Errorf("the request: %+v", r)
	}
	s.wants(t, "POST", "/lock", `{"paths":["/workspaces/x"]}`, 400, "not in the workspace")
	s.wants(t, "POST", "/lock", `{"paths":["x"],"all":true}`, 400, "only to unlock")
	s.wants(t, "POST", "/unlock", `{"all":true,"paths":["x"]}`, 400, "want paths, or all")
	s.wants(t, "POST", "/unlock", `{"all":true}`, 500, "its log has the reason")
	if _, text := s.ask(t, "POST", "/unlock", `{"all":true}`); strings.Contains(text, "secret") {
		t.Errorf("an internal error is told: %s", text)
	}
	s.wants(t, "POST", "/messages", `{"text":"\u001b[2Jüber\u202e"}`, 200, `{"seq":1}`)
	s.wants(t, "GET", "/messages", "", 200, `"sandbox":"me","sandbox_id":"sb_1","by":"agent","topic":"general","text":"\u001b[2Jüber\u202e"}],"next":1}`)
	s.wants(t, "GET", "/messages?after=1&after=2", "", 400, "once at most")
	s.wants(t, "GET", "/messages?limit=x", "", 400, "limit: want a number")
	s.wants(t, "GET", "/messages?limit=-1", "", 400, "limit -1")
	s.wants(t, "GET", "/messages?after=1&wait_seconds=61", "", 400, "want 0 to 60")
	s.wants(t, "GET", "/members", "", 200, `{"members":[]}`)
}

// TestAWaitEndsWithItsConnection checks that a client that leaves waits no longer, that waits leave
// room for other requests, and that Close ends them.
func TestAWaitEndsWithItsConnection(t *testing.T) {
	s := serve(t)
	ended := make(chan int, 9)
	var first net.Conn
	for i := range 8 {
		c := s.dial(t)
		if i == 0 {
			first = c
		}
		go func() {
			_, _ = io.WriteString(c, "POST /lock HTTP/1.1\r\nHost: b\r\nContent-Length: 33\r\n\r\n"+`{"paths":["x"],"wait_seconds":60}`)
			_, _ = io.Copy(io.Discard, c) // until the server closes it, or the test
			ended <- i
		}()
		<-s.locked
	}
	s.wants(t, "POST", "/lock", `{"paths":["x"],"wait_seconds":60}`, 429, "wait already")
	s.wants(t, "GET", "/members", "", 200, "members")
	first.Close()
	for status := 429; status == 429; { // the seat of the one that has left is free in a moment
		status, _ = s.ask(t, "GET", "/messages?wait_seconds=1", "")
	}
	if err := s.server.Close(); err != nil {
		t.Error(err)
	}
	for range 8 {
		<-ended
	}
}

// TestWhoIsNotAdmittedIsRefused checks that nothing is read of a peer that may not ask, and that
// connections that say nothing leave no room for more.
func TestWhoIsNotAdmittedIsRefused(t *testing.T) {
	s := serve(t)
	status := func() string {
		line, _ := bufio.NewReader(s.dial(t)).ReadString('\n')
		return strings.TrimSpace(line)
	}
	s.admits.Store(false)
	if got := status(); got != "HTTP/1.1 403 Forbidden" {
		t.Errorf("not admitted: %q", got)
	}
	s.admits.Store(true)
	for range 16 {
		s.dial(t)
	}
	if got := status(); got != "HTTP/1.1 503 Service Unavailable" {
		t.Errorf("too many: %q", got)
	}
}

// Each change of the locks costs every other sandbox of the source, so there are few of them.
func TestAFloodOfLocksIsRefused(t *testing.T) {
	s := serve(t)
	end := make(chan struct{})
	defer close(end)
	go func() {
		for {
			select {
			case <-s.locked:
			case <-end:
				return
			}
		}
	}()
	const most = 100 // fewer than all requests at once
	refused := 0
	c := s.dial(t)
	for range most {
		status, text := s.askOn(t, c, "POST", "/lock", `{"paths":["a"]}`)
		switch {
		case status == http.StatusTooManyRequests && strings.Contains(text, "too many changes of locks"):
			refused++
		case status != http.StatusOK:
			t.Fatalf("%d %s", status, text)
		}
	}
	if refused == 0 {
		t.Errorf("%d locks were taken in a row", most)
	}
	s.wants(t, "POST", "/unlock", `{"all":true}`, http.StatusTooManyRequests, "too many changes")
	s.wants(t, "GET", "/locks", "", http.StatusOK, "locks")
}
