package serve_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// lastOf reads a stream to its end and returns how that came.
func lastOf(stream outputs) error {
	for {
		if _, err := stream.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// A call that ends what another is about tells that other why.
func TestCallsThatCross(t *testing.T) {
	s := start(t, withREST)
	ctx := t.Context()
	t.Run("a stop ends commands", func(t *testing.T) {
		mine := s.inTest(t).things()
		stream, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: mine.sandbox, Command: "echo begun; sleep 1000"})
		must(t, stream, err)
		m, err := stream.Recv()
		must(t, m, err)
		body := `{"command":"echo begun; sleep 1000"}`
		conn := s.dial("POST /v1/sandboxes/"+mine.sandbox+"/exec:stream", "Connection: close\r\nContent-Length: 36\r\n\r\n"+body)
		await(t, conn, "begun")
		session, err := s.sandboxes.SessionExecStream(ctx, &sandboxv1.SessionExecRequest{SessionId: mine.session, Command: "echo begun; sleep 1000"})
		must(t, session, err)
		m, err = session.Recv()
		must(t, m, err)
		_, err = s.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: mine.sandbox})
		must(t, 0, err)
		wantCode(t, lastOf(stream), codes.FailedPrecondition, "sandbox is not running")
		wantCode(t, lastOf(session), codes.FailedPrecondition, "sandbox is not running")
		rest, err := io.ReadAll(conn)
		if got := string(must(t, rest, err)); !strings.Contains(got, "event: error") || !strings.Contains(got, `"code":9`) {
			t.Errorf("REST says %q", got)
		}
		_, err = s.sandboxes.GetSession(ctx, &sandboxv1.GetSessionRequest{SessionId: mine.session})
		wantCode(t, err, codes.NotFound)
	})
	t.Run("a destruction ends commands", func(t *testing.T) {
		mine := s.inTest(t).things()
		stream, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: mine.sandbox, Command: "echo begun; sleep 1000"})
		must(t, stream, err)
		m, err := stream.Recv()
		must(t, m, err)
		_, err = s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: mine.sandbox})
		must(t, 0, err)
		wantCode(t, lastOf(stream), codes.FailedPrecondition, "sandbox is not running")
	})
	t.Run("a session's end ends its command", func(t *testing.T) {
		mine := s.inTest(t).things()
		stream, err := s.sandboxes.SessionExecStream(ctx, &sandboxv1.SessionExecRequest{SessionId: mine.session, Command: "echo begun; sleep 1000"})
		must(t, stream, err)
		m, err := stream.Recv()
		must(t, m, err)
		_, err = s.sandboxes.DestroySession(ctx, &sandboxv1.DestroySessionRequest{SessionId: mine.session})
		must(t, 0, err)
		wantCode(t, lastOf(stream), codes.FailedPrecondition, "session is closed")
	})
	t.Run("a codebase is deleted under an upload", func(t *testing.T) {
		id := s.inTest(t).codebase(map[string]string{"f": "x"})
		up, err := s.codebases.UploadFiles(ctx)
		must(t, up, err)
		_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: "new"}}})
		_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: []byte("half")}})
		dir := filepath.Join(s.home, "codebases", id)
		testenv.Eventually(t, "the upload begins", func() bool { return len(names(t, filepath.Join(dir, "staging"))) > 1 })
		_, err = s.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: id})
		must(t, 0, err)
		_, err = up.CloseAndRecv()
		wantCode(t, err, codes.NotFound, id)
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the codebase is left: %v", err)
		}
	})
	t.Run("uploads of one path", func(t *testing.T) {
		id := s.inTest(t).codebase(nil)
		contents := map[string]bool{}
		var all sync.WaitGroup
		for i := range 8 {
			content := strings.Repeat(string(rune('a'+i)), 300_000)
			contents[content] = true
			all.Go(func() {
				if _, err := s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: "f"}, content); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got, err := s.download(id, "f"); !contents[got] || err != nil {
			t.Errorf("the file is no one's: %d bytes, %v", len(got), err)
		}
		entry, err := s.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: id})
		if must(t, entry, err).Size != 300_000 || entry.FileCount != 1 {
			t.Errorf("it has %d bytes in %d files", entry.Size, entry.FileCount)
		}
	})
	t.Run("starts and destructions of one sandbox", func(t *testing.T) {
		cb := s.inTest(t).codebase(nil)
		made, err := s.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything})
		id := must(t, made, err).Id
		var started sync.Map
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				_, err := s.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: id})
				if code := status.Code(err); code == codes.OK {
					started.Store(i, true)
				} else if code != codes.FailedPrecondition {
					t.Errorf("start: %v", err)
				}
			})
		}
		all.Wait()
		n := 0
		started.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d of 4 starts succeed, want 1", n)
		}
		gone := 0
		var mu sync.Mutex
		for range 4 {
			all.Go(func() {
				_, err := s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id})
				mu.Lock()
				defer mu.Unlock()
				if code := status.Code(err); code == codes.OK {
					gone++
				} else if code != codes.NotFound {
					t.Errorf("destroy: %v", err)
				}
			})
		}
		all.Wait()
		if gone != 1 {
			t.Errorf("%d of 4 destructions succeed, want 1", gone)
		}
		_, err = s.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: cb})
		must(t, 0, err)
	})
}
