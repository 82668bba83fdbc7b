package serve_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// Whoever leaves amid a call leaves nothing behind.

// dial sends a request of REST by hand, so that its connection can be cut.
func (s *server) dial(head, body string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s", head, s.token, body); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// await reads until the text has come.
func await(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	var got strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(got.String(), text) {
		n, err := conn.Read(buffer)
		got.Write(buffer[:n])
		if err != nil {
			t.Fatalf("%q: %v", got.String(), err)
		}
	}
}

func TestAnUploadWhoseClientVanishes(t *testing.T) {
	s := start(t, withREST)
	id := s.codebase(map[string]string{"kept": "old"})
	staged := func() int { return len(names(t, filepath.Join(s.home, "codebases", id, "staging"))) - 1 }
	vanish := map[string]func(path string) (leave func()){
		"gRPC": func(path string) func() {
			ctx, cancel := context.WithCancel(t.Context())
			up, err := s.codebases.UploadFiles(ctx)
			must(t, up, err)
			_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: path}}})
			_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: []byte("half")}})
			return cancel
		},
		"REST": func(path string) func() {
			conn := s.dial("PUT /v1/codebases/"+id+"/files/"+path, "Content-Length: 100000\r\n\r\nhalf")
			return func() { conn.Close() }
		},
		"REST in chunks": func(path string) func() {
			conn := s.dial("PUT /v1/codebases/"+id+"/files/"+path, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
			return func() { conn.Close() }
		},
	}
	for name, begin := range vanish {
		for _, path := range []string{"kept", "new"} {
			leave := begin(path)
			testenv.Eventually(t, name+": the upload begins", func() bool { return staged() > 0 })
			leave()
			testenv.Eventually(t, name+": what was staged is gone", func() bool { return staged() == 0 })
		}
	}
	if got := names(t, filepath.Join(s.home, "codebases", id, "files")); len(got) != 2 || got[1] != "/kept" {
		t.Errorf("the codebase has %q", got)
	}
	if got, err := s.download(id, "kept"); got != "old" || err != nil {
		t.Errorf("kept is %q, %v", got, err)
	}
	entry, err := s.codebases.GetCodebase(t.Context(), &sandboxv1.GetCodebaseRequest{CodebaseId: id})
	if must(t, entry, err).Size != 3 || entry.FileCount != 1 {
		t.Errorf("it has %d bytes in %d files", entry.Size, entry.FileCount)
	}
}

// outputs is what a command writes.
type outputs interface {
	Recv() (*sandboxv1.ExecOutput, error)
}

func TestACommandWhoseClientVanishes(t *testing.T) {
	s := start(t, withREST)
	mine := s.things()
	command := func(n int) string { return fmt.Sprintf("echo begun; exec sleep 43%02d", n) }
	runs := func(n int) bool {
		return strings.Contains(s.exec(mine.sandbox, `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '`), fmt.Sprintf("sleep 43%02d ", n))
	}
	stream := func(open func(ctx context.Context) (outputs, error)) func() {
		ctx, cancel := context.WithCancel(t.Context())
		out, err := open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := out.Recv(); string(must(t, m, err).Data) != "begun\n" {
			t.Errorf("it began with %v", m)
		}
		return cancel
	}
	post := func(path, command, text string) func() {
		body := object{"command": command}.String()
		conn := s.dial("POST "+path, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
		if text != "" {
			await(t, conn, text)
		}
		return func() { conn.Close() }
	}
	for n, begin := range []func(command string) (leave func()){
		func(command string) func() {
			return stream(func(ctx context.Context) (outputs, error) {
				return s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: mine.sandbox, Command: command})
			})
		},
		func(command string) func() {
			return stream(func(ctx context.Context) (outputs, error) {
				// In a subshell: the session's own stays.
				return s.sandboxes.SessionExecStream(ctx, &sandboxv1.SessionExecRequest{SessionId: mine.session, Command: "(" + command + ")"})
			})
		},
		func(command string) func() {
			return post("/v1/sandboxes/"+mine.sandbox+"/exec:stream", command, "begun")
		},
		func(command string) func() {
			return post("/v1/sessions/"+mine.session+"/exec:stream", "("+command+")", "begun")
		},
		func(command string) func() { return post("/v1/sandboxes/"+mine.sandbox+"/exec", command, "") },
		func(command string) func() { return post("/v1/sessions/"+mine.session+"/exec", "("+command+")", "") },
	} {
		leave := begin(command(n))
		testenv.Eventually(t, "command "+fmt.Sprint(n)+" runs", func() bool { return runs(n) })
		leave()
		testenv.Eventually(t, "command "+fmt.Sprint(n)+" is ended", func() bool { return !runs(n) })
	}
	got, err := s.sandboxes.SessionExec(t.Context(), &sandboxv1.SessionExecRequest{SessionId: mine.session, Command: "echo still"})
	if must(t, got, err).Stdout != "still\n" {
		t.Errorf("the session says %v", got)
	}
}

func TestAFollowerThatVanishes(t *testing.T) {
	s := start(t, withREST)
	mine := s.things()
	open := func() (n int) {
		fds := fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)
		entries, err := os.ReadDir(fds)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && strings.Contains(target, "audit") {
				n++
			}
		}
		return n
	}
	for name, follow := range map[string]func() (leave func()){
		"gRPC": func() func() {
			ctx, cancel := context.WithCancel(t.Context())
			events, err := s.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: mine.sandbox, Follow: true})
			must(t, events, err)
			event, err := events.Recv()
			must(t, event, err)
			return cancel
		},
		"REST": func() func() {
			conn := s.dial("GET /v1/sandboxes/"+mine.sandbox+"/audit?follow=true", "\r\n")
			await(t, conn, `"event":`)
			return func() { conn.Close() }
		},
		"REST, as events": func() func() {
			conn := s.dial("GET /v1/sandboxes/"+mine.sandbox+"/audit:stream", "\r\n")
			await(t, conn, "event: audit")
			return func() { conn.Close() }
		},
	} {
		leave := follow()
		if open() == 0 {
			t.Errorf("%s: the log is not open while it is followed", name)
		}
		leave()
		testenv.Eventually(t, name+": the log is closed", func() bool { return open() == 0 })
	}
}
