// Package serve_test drives the real server over gRPC, as a program would.
package serve_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

// crashing is the binary that can be killed between two steps. It is built when
// it is first asked for.
var crashing func() (string, error)

func TestMain(m *testing.M) {
	harness.Main(m, &binary, func(dir string) (string, error) {
		crashing = sync.OnceValues(func() (string, error) { return harness.BuildToCrash(filepath.Join(dir, "crashing")) })
		return harness.BuildWithServer(dir)
	})
}

// server is a running `agentfense serve` with a client of it.
type server struct {
	t     *testing.T
	home  string
	env   []string
	flags []string // of serve
	cmd   *exec.Cmd
	conn  *grpc.ClientConn
	token string
	url   string // of REST
	// crashFile has the server that is started next killed at the point that it
	// will hold.
	crashFile string
	program   string // what is started as the server; "": binary
	codebases sandboxv1.CodebaseServiceClient
	sandboxes sandboxv1.SandboxServiceClient
}

// start starts a server with a state directory of its own. env are settings of
// its configuration, "NAME=VALUE".
func start(t *testing.T, env ...string) *server {
	t.Helper()
	return startAt(t, t.TempDir(), env...)
}

// startAt is start with a state directory of the caller's.
func startAt(t *testing.T, home string, env ...string) *server {
	t.Helper()
	s := &server{t: t, home: home, env: env}
	s.begin()
	return s
}

// begin is serve for the rest of the test.
func (s *server) begin() {
	s.t.Helper()
	testenv.FUSE(s.t)
	testenv.Bwrap(s.t)
	s.serve()
	s.t.Cleanup(func() {
		if s.cmd != nil {
			s.end(syscall.SIGTERM)
		}
		s.removeAll()
	})
}

// environ is the environment of agentfense.
func (s *server) environ() []string {
	return append(os.Environ(), append([]string{
		"AGENTFENSE_HOME=" + s.home, "AGENTFENSE_SERVER_GRPC_ADDR=127.0.0.1:0", "AGENTFENSE_SERVER_HTTP_ADDR=",
	}, s.env...)...)
}

// serve starts the server and connects.
func (s *server) serve() {
	s.t.Helper()
	s.cmd = exec.Command(cmp.Or(s.program, binary), append([]string{"serve"}, s.flags...)...)
	s.cmd.Env = s.environ()
	if s.crashFile != "" {
		whole, err := crashing()
		s.cmd.Path = must(s.t, whole, err)
		s.cmd.Env = append(s.cmd.Env, failpoint.Variable+"="+s.crashFile)
	}
	s.cmd.Stderr = &logger{t: s.t}
	stdout, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	said := bufio.NewReader(stdout)
	addr := s.address(said, "grpc")
	if slices.Contains(s.env, withREST) {
		s.url = "http://" + s.address(said, "http")
	}
	token, err := os.ReadFile(filepath.Join(s.home, "token"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	s.conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(s.token)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.codebases = sandboxv1.NewCodebaseServiceClient(s.conn)
	s.sandboxes = sandboxv1.NewSandboxServiceClient(s.conn)
}

// withREST is the setting with which the server serves REST too.
const withREST = "AGENTFENSE_SERVER_HTTP_ADDR=127.0.0.1:0"

// address reads on which address the server listens.
func (s *server) address(said *bufio.Reader, of string) string {
	s.t.Helper()
	line, err := said.ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), of+" ")
	if !ok {
		s.t.Fatalf("the server said %q, %v", line, err)
	}
	return addr
}

// end ends the server by a signal.
func (s *server) end(sig syscall.Signal) {
	s.t.Helper()
	s.conn.Close()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Error(err)
	}
	err := s.cmd.Wait()
	if sig == syscall.SIGTERM && err != nil {
		s.t.Errorf("the server ended with %v", err)
	}
	s.cmd = nil
}

// agentfense runs the command line on the server's state directory.
func (s *server) agentfense(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = s.environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("agentfense %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// removeAll ends and removes what is left.
func (s *server) removeAll() {
	for name := range strings.FieldsSeq(s.agentfense("ls", "--quiet")) {
		s.agentfense("rm", "--force", name)
	}
}

// bearer shows the token.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// logger writes into the test's log.
type logger struct{ t *testing.T }

func (l *logger) Write(b []byte) (int, error) {
	l.t.Logf("server: %s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// must fails the test unless err is nil.
func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantCode fails the test unless err has the code and its text holds all of
// words.
func wantCode(t *testing.T, err error, want codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	for _, word := range words {
		if !strings.Contains(status.Convert(err).Message(), word) {
			t.Errorf("error = %v, want it to say %q", err, word)
		}
	}
}

// codebase makes a codebase of files.
func (s *server) codebase(files map[string]string) string {
	s.t.Helper()
	made, err := s.codebases.CreateCodebase(s.t.Context(), &sandboxv1.CreateCodebaseRequest{Name: "app", OwnerId: "me"})
	id := must(s.t, made, err).Id
	for path, content := range files {
		s.upload(id, path, content)
	}
	return id
}

func (s *server) upload(id, path, content string) *sandboxv1.UploadResult {
	s.t.Helper()
	result, err := s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: path}, content)
	return must(s.t, result, err)
}

func (s *server) tryUpload(m *sandboxv1.UploadChunk_Metadata, content string) (*sandboxv1.UploadResult, error) {
	s.t.Helper()
	up, err := s.codebases.UploadFiles(s.t.Context())
	if err != nil {
		return nil, err
	}
	_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: m}}) // the answer tells
	if content != "" {
		_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: []byte(content)}})
	}
	return up.CloseAndRecv()
}

// download returns a file of a codebase.
func (s *server) download(id, path string) (string, error) {
	s.t.Helper()
	down, err := s.codebases.DownloadFile(s.t.Context(), &sandboxv1.DownloadFileRequest{CodebaseId: id, FilePath: path})
	var content strings.Builder
	for err == nil {
		var chunk *sandboxv1.FileChunk
		if chunk, err = down.Recv(); err == nil {
			content.Write(chunk.Data)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return content.String(), err
}

// everything lets a sandbox write everywhere.
var everything = []*sandboxv1.PermissionRule{{Pattern: "**/*", Permission: sandboxv1.Permission_PERMISSION_WRITE}}

// sandbox makes a sandbox of a codebase and starts it.
func (s *server) sandbox(codebase string, rules ...*sandboxv1.PermissionRule) string {
	s.t.Helper()
	if len(rules) == 0 {
		rules = everything
	}
	made, err := s.sandboxes.CreateSandbox(s.t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: codebase, Permissions: rules})
	id := must(s.t, made, err).Id
	started, err := s.sandboxes.StartSandbox(s.t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	if got := must(s.t, started, err).Status; got != sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING {
		s.t.Fatalf("status after the start = %s", got)
	}
	return id
}

// exec runs a command that is to succeed and returns what it wrote.
func (s *server) exec(id, command string) string {
	s.t.Helper()
	r, err := s.sandboxes.Exec(s.t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: command})
	if must(s.t, r, err).ExitCode != 0 {
		s.t.Errorf("%s: exit code %d, stderr %q", command, r.ExitCode, r.Stderr)
	}
	return r.Stdout
}

func (s *server) status(id string) sandboxv1.SandboxStatus {
	s.t.Helper()
	got, err := s.sandboxes.GetSandbox(s.t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
	return must(s.t, got, err).Status
}

// withToken shows another token instead.
func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}
