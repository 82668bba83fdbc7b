package control_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// filler uploads as much as the server takes.
type filler struct {
	t         *testing.T
	ctx       context.Context
	codebases sandboxv1.CodebaseServiceClient
}

func newFiller(t *testing.T, s *server) *filler {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	t.Cleanup(cancel)
	return &filler{t, metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.Token), sandboxv1.NewCodebaseServiceClient(conn)}
}

// begin sends a file of so many bytes, of which it tells total before, and no end.
func (f *filler) begin(ctx context.Context, cb, path string, size, total int) (grpc.ClientStreamingClient[sandboxv1.UploadChunk, sandboxv1.UploadResult], error) {
	up, err := f.codebases.UploadFiles(ctx)
	if err != nil {
		return nil, err
	}
	err = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: path, TotalSize: int64(total)}}})
	for range size >> 10 {
		if err == nil {
			err = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: make([]byte, 1<<10)}})
		}
	}
	return up, err
}

// upload stores a file of some KiB.
func (f *filler) upload(cb, path string, size int) error {
	up, err := f.begin(f.ctx, cb, path, size, size)
	if err != nil && err != io.EOF { //nolint:errorlint // io.EOF is what Send returns as it is; the answer tells why
		return err
	}
	_, err = up.CloseAndRecv()
	return err
}

// used is what an owner's codebases hold, as the server tells.
func (s *server) used(cbs []string) (bytes int64) {
	s.t.Helper()
	for _, cb := range cbs {
		var n int64
		if _, err := fmt.Sscan(s.must(http.MethodGet, "/codebases/"+cb, "", "size"), &n); err == nil {
			bytes += n
		}
	}
	return bytes
}

// The bound of these tests, and how large each file is.
const most, file = 64 << 10, 8 << 10

// A token of one owner cannot fill the disk: not by many codebases, by uploads at
// once, by uploads that never end, or by a server that is killed meanwhile.
func TestOwnerBounds(t *testing.T) {
	t.Setenv("AGENTFENSE_LIMITS_MAX_CODEBASES_PER_OWNER", "3")
	t.Setenv("AGENTFENSE_LIMITS_MAX_CODEBASE_SIZE_PER_OWNER", fmt.Sprint(most))
	t.Setenv("AGENTFENSE_LIMITS_MAX_CODEBASE_FILES_PER_OWNER", "100")
	box := harness.New(t, binary, nil)
	s := serve(t, box)
	mallory := s.as(box, "mallory")
	var cbs []string
	for range 3 {
		cbs = append(cbs, mallory.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id"))
	}
	statusCode, text := mallory.ask(http.MethodPost, "/codebases", `{"name": "c"}`)
	if statusCode != http.StatusTooManyRequests || !strings.Contains(text, "the owner has 3, and 3 codebases are allowed") {
		t.Errorf("a fourth codebase: %d %s", statusCode, text)
	}

	fill := newFiller(t, mallory)
	var all sync.WaitGroup
	for i, cb := range cbs {
		for j := range 8 {
			all.Go(func() {
				err := fill.upload(cb, fmt.Sprintf("f%d-%d", i, j), file)
				if err != nil && status.Code(err) != codes.ResourceExhausted {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if n := mallory.used(cbs); n != most {
		t.Errorf("%d bytes are stored, want the %d that are allowed", n, most)
	}
	err := fill.upload(cbs[0], "more", most)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "65536 bytes are allowed") {
		t.Errorf("one more: %v", err)
	}
	others := s.as(box, "bob")
	if err := newFiller(t, others).upload(others.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id"), "f", file); err != nil {
		t.Errorf("another owner: %v", err)
	}

	if err := s.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = s.Cmd.Wait()
	s = serve(t, box)
	mallory.Server.Addr, mallory.Server.URL = s.Addr, s.URL
	fill = newFiller(t, mallory)
	if err := fill.upload(cbs[0], "more", most); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("after a restart: %v", err)
	}
	mallory.holdUnfinished(box, fill, cbs)
}

// Empty directories take inodes: they count, by whichever way they come.
func TestOwnerBoundsOfDirectories(t *testing.T) {
	t.Setenv("AGENTFENSE_LIMITS_MAX_CODEBASE_FILES_PER_OWNER", "10")
	box := harness.New(t, binary, nil)
	s := serve(t, box)
	mallory := s.as(box, "mallory")
	cb := mallory.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id")
	fill := newFiller(t, mallory)
	for i := range 4 {
		if err := fill.makeDir(cb, fmt.Sprintf("d%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"a/b/c/d/e/f/g", strings.Repeat("deep/", 500) + "d"} {
		if err := fill.makeDir(cb, dir); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%.20s: %v", dir, err)
		}
	}
	sb := mallory.must(http.MethodPost, "/sandboxes", fmt.Sprintf(`{"codebase_id": %q, "permissions": [{"pattern": "/**", "permission": "PERMISSION_WRITE"}]}`, cb), "id")
	mallory.must(http.MethodPost, "/sandboxes/"+sb+"/start", "", "id")
	defer mallory.must(http.MethodPost, "/sandboxes/"+sb+"/stop", "", "id")
	mallory.must(http.MethodPost, "/sandboxes/"+sb+"/exec", `{"command": "mkdir -p x/1 x/2 x/3 x/4 x/5"}`, "exitCode")
	if err := fill.makeDir(cb, "d4"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beside those of a sandbox: %v", err)
	}
	mallory.must(http.MethodPost, "/sandboxes/"+sb+"/exec", `{"command": "rm -r x"}`, "exitCode")
	if err := fill.makeDir(cb, "d4"); err != nil {
		t.Errorf("when they are gone: %v", err)
	}
}

// makeDir uploads a directory.
func (f *filler) makeDir(cb, path string) error {
	up, err := f.codebases.UploadTree(f.ctx)
	if err == nil {
		err = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: path, Directory: true}}})
	}
	if err == nil || err == io.EOF { //nolint:errorlint // as in upload
		_, err = up.CloseAndRecv()
	}
	return err
}

// holdUnfinished has uploads that never end take the room, which is free when
// they are given up.
func (s *server) holdUnfinished(box *harness.Sandbox, fill *filler, cbs []string) {
	t := s.t
	t.Helper()
	for _, cb := range cbs[1:] {
		s.must(http.MethodDelete, "/codebases/"+cb, "", "id")
	}
	cb := s.must(http.MethodPost, "/codebases", `{"name": "c"}`, "id")
	cbs = []string{cbs[0], cb}
	ctx, giveUp := context.WithCancel(fill.ctx)
	defer giveUp()
	left := most - int(s.used(cbs))
	for i := range left / file {
		if _, err := fill.begin(ctx, cb, fmt.Sprint("held", i), file, 0); err != nil {
			t.Fatal(err)
		}
	}
	waitStaged(t, box, cb, left)
	if err := fill.upload(cb, "f", 1<<10); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beside uploads that do not end: %v", err)
	}
	giveUp()
	waitStaged(t, box, cb, 0)
	for deadline := time.Now().Add(patience); ; { // the file goes before its room is free
		err := fill.upload(cb, "f", 1<<10)
		if err == nil {
			return
		}
		if status.Code(err) != codes.ResourceExhausted || time.Now().After(deadline) {
			t.Fatalf("when they are given up: %v", err)
		}
	}
}

// waitStaged waits until so many bytes are on their way into a codebase.
func waitStaged(t *testing.T, box *harness.Sandbox, cb string, want int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d bytes are on their way", want), func() bool {
		staged, err := filepath.Glob(filepath.Join(box.Home, "codebases", cb, "staging", "*"))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, name := range staged {
			if info, err := os.Stat(name); err == nil {
				got += int(info.Size())
			}
		}
		return got == want && (want > 0 || len(staged) == 0)
	})
}
