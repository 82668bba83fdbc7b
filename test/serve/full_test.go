package serve_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// startOnDisk is start with the state on a small disk of its own.
func startOnDisk(t *testing.T, env ...string) *server {
	t.Helper()
	testenv.Root(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=32m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	return startAt(t, filepath.Join(disk, "home"), env...)
}

// fill takes all that the disk has left, but for so many bytes, and returns what
// gives it back.
func (s *server) fill(but int64) (empty func()) {
	s.t.Helper()
	file := filepath.Join(filepath.Dir(s.home), "filler")
	f, err := os.Create(file)
	must(s.t, f, err)
	_, err = io.Copy(f, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		s.t.Fatalf("the disk is not full: %v", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err = errors.Join(err, f.Truncate(max(0, must(s.t, size, err)-but)), f.Close()); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if err := os.Remove(file); err != nil {
			s.t.Error(err)
		}
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestUploadsToAFullDisk(t *testing.T) {
	s := startOnDisk(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	empty := s.fill(1 << 20)
	large := strings.Repeat("x", 2<<20)
	for _, path := range []string{"f", "new", "far/down/new"} {
		_, err := s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: path}, large)
		wantCode(t, err, codes.ResourceExhausted, path)
	}
	up, err := s.codebases.UploadTree(t.Context())
	must(t, up, err)
	for path, content := range map[string]string{"f": large, "new": large} {
		for _, chunk := range []*sandboxv1.UploadChunk{
			{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: path}}},
			{Content: &sandboxv1.UploadChunk_Data{Data: []byte(content)}},
		} {
			_ = up.Send(chunk) // the answer tells
		}
	}
	_, err = up.CloseAndRecv()
	wantCode(t, err, codes.ResourceExhausted)
	empty()
	if got := s.have(cb, "f"); got != "old\n" || s.names(cb) != "f" {
		t.Errorf("f is %.20q among %q", got, s.names(cb))
	}
	s.isWhole()
	s.upload(cb, "new", large)
}

func TestCreationsOnAFullDisk(t *testing.T) {
	s := startOnDisk(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	empty := s.fill(0)
	_, err := s.codebases.CreateCodebase(t.Context(), &sandboxv1.CreateCodebaseRequest{Name: "n", OwnerId: "me"})
	wantCode(t, err, codes.ResourceExhausted)
	_, err = s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything})
	wantCode(t, err, codes.ResourceExhausted)
	if got := s.have(cb, "f"); got != "old\n" || s.status(id) != sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING {
		t.Errorf("f is %q, the sandbox %s", got, s.status(id))
	}
	empty()
	s.isWhole()
	if got := s.exec(s.sandbox(cb), "cat f"); got != "old\n" {
		t.Errorf("with room again a new sandbox shows %q", got)
	}
}

func TestACommandThatFillsTheDisk(t *testing.T) {
	s := startOnDisk(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	empty := s.fill(4 << 20)
	r, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: id, Command: "echo new > f; head -c 8000000 /dev/zero > large && exit 7; rm large; exit 3",
	})
	if err != nil || r.ExitCode != 3 || !strings.Contains(r.Stderr, "No space left") {
		t.Errorf("the command ended with %v, %v", r, err)
	}
	empty()
	s.exec(id, "true")
	if got := s.have(cb, "f"); got != "new\n" || s.names(cb) != "f" {
		t.Errorf("the codebase has %q among %q", got, s.names(cb))
	}
	s.isWhole()
}

func TestASyncToAFullDisk(t *testing.T) {
	s := startOnDisk(t)
	cb := s.codebase(map[string]string{"a": "old\n", "gone": "old\n"})
	id := s.sandbox(cb)
	empty := s.fill(6 << 20)
	// It has room in the delta, and not once more in the codebase.
	_, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: id, Command: "head -c 4000000 /dev/zero > a; rm gone; echo new > z",
	})
	wantCode(t, err, codes.ResourceExhausted)
	if got := s.have(cb, "a") + s.have(cb, "gone"); got != "old\nold\n" {
		t.Errorf("the codebase has %.20q", got)
	}
	empty()
	if got := s.exec(id, "wc -c < a; cat z; test ! -e gone"); got != "4000000\nnew\n" {
		t.Errorf("the sandbox shows %q", got)
	}
	if got := s.have(cb, "a"); len(got) != 4000000 || s.have(cb, "gone") != "(none)" || s.have(cb, "z") != "new\n" {
		t.Errorf("with room again the codebase has %d bytes in a, %q", len(got), s.names(cb))
	}
	s.isWhole()
}

func TestAnApplyToAFullDisk(t *testing.T) {
	s := startOnDisk(t, "AGENTFENSE_SANDBOX_SYNC=manual")
	cb := s.codebase(map[string]string{"a": "old\n", "gone": "old\n"})
	id := s.sandbox(cb)
	s.exec(id, "head -c 4000000 /dev/zero > a; rm gone")
	apply := func() error {
		_, err := s.sandboxes.Apply(t.Context(), &sandboxv1.ApplyRequest{SandboxId: id})
		return err
	}
	empty := s.fill(1 << 20)
	wantCode(t, apply(), codes.ResourceExhausted)
	if got := s.have(cb, "a") + s.have(cb, "gone"); got != "old\nold\n" {
		t.Errorf("the codebase has %.20q", got)
	}
	empty()
	if err := apply(); err != nil {
		t.Error(err)
	}
	if got := s.have(cb, "a"); len(got) != 4000000 || s.names(cb) != "a" {
		t.Errorf("with room again the codebase has %d bytes in a, %q", len(got), s.names(cb))
	}
	s.isWhole()
}
