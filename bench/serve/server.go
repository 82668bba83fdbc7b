package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/bench/host"
)

// server is a running `agentfense serve` with clients of it.
type server struct {
	binary    string
	home      string
	log       *os.File // what the server says
	cmd       *exec.Cmd
	token     string
	url       string // of REST
	conn      *grpc.ClientConn
	codebases sandboxv1.CodebaseServiceClient
	sandboxes sandboxv1.SandboxServiceClient
}

// How long the server may take to listen, and to end.
const (
	startPatience = 30 * time.Second
	endPatience   = 30 * time.Second
	clearPatience = 5 * time.Minute // for many sandboxes
)

// leftover is what could not be cleared away.
type leftover struct{ error }

// startServer starts a server in a new directory below o.Dir.
func startServer(ctx context.Context, o Options) (*server, error) {
	binary, err := host.FindAgentfense(o.Binary)
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp(o.Dir, "agentfense-bench-serve-")
	if err != nil {
		return nil, err
	}
	s := &server{binary: binary, home: home}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *server) start(ctx context.Context) error {
	var err error
	if s.log, err = os.Create(filepath.Join(s.home, "server.log")); err != nil {
		return err
	}
	s.cmd = s.command("serve")
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return err
	}
	said := bufio.NewReader(stdout)
	kill := time.AfterFunc(startPatience, func() { s.cmd.Process.Kill() })
	defer kill.Stop()
	defer context.AfterFunc(ctx, func() { s.cmd.Process.Kill() })()
	grpcAddr, err := address(said, "grpc")
	if err != nil {
		return err
	}
	httpAddr, err := address(said, "http")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(s.home, "token"))
	if err != nil {
		return err
	}
	s.token, s.url = strings.TrimSpace(string(token)), "http://"+httpAddr
	s.conn, err = grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(s.token)))
	if err != nil {
		return err
	}
	s.codebases = sandboxv1.NewCodebaseServiceClient(s.conn)
	s.sandboxes = sandboxv1.NewSandboxServiceClient(s.conn)
	return nil
}

// address reads on which address the server listens.
func address(said *bufio.Reader, of string) (string, error) {
	line, err := said.ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), of+" ")
	if !ok {
		return "", fmt.Errorf("the server said %q: %w", line, err)
	}
	return addr, nil
}

// command is agentfense on the server's state directory. It is not in our
// process group, so that Ctrl-C is for the benchmark alone.
func (s *server) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Env = append(os.Environ(), s.homeVariable(),
		"AGENTFENSE_SERVER_GRPC_ADDR=127.0.0.1:0", "AGENTFENSE_SERVER_HTTP_ADDR=127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (s *server) homeVariable() string { return "AGENTFENSE_HOME=" + s.home }

// Close ends the server and every sandbox, and removes the state directory.
func (s *server) Close() error {
	if s.conn != nil {
		s.conn.Close()
	}
	var errs []error
	if s.cmd != nil && s.cmd.Process != nil {
		errs = append(errs, s.end())
	}
	if s.log != nil {
		s.log.Close()
	}
	if err := s.clear(); err != nil {
		errs = append(errs, leftover{fmt.Errorf("left in %s: %w", s.home, err)})
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, os.RemoveAll(s.home))...)
}

func (s *server) end() error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(endPatience, func() { s.cmd.Process.Kill() })
	defer kill.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the server ended with %w%s", err, s.lastWords())
	}
	return nil
}

// lastWords is the end of what the server has said.
func (s *server) lastWords() string {
	text, err := os.ReadFile(s.log.Name())
	if err != nil || len(text) == 0 {
		return ""
	}
	const most = 2000
	return ": " + strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// clear ends and removes all sandboxes.
func (s *server) clear() error {
	entries, err := os.ReadDir(filepath.Join(s.home, "sandboxes"))
	if errors.Is(err, os.ErrNotExist) || len(entries) == 0 {
		return nil
	}
	args := []string{"rm", "--force"}
	for _, e := range entries {
		args = append(args, e.Name())
	}
	cmd := s.command(args...)
	kill := time.AfterFunc(clearPatience, func() { cmd.Process.Kill() })
	defer kill.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rm: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// bearer shows the token.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// everything lets a sandbox write everywhere.
var everything = []*sandboxv1.PermissionRule{{Pattern: "**/*", Permission: sandboxv1.Permission_PERMISSION_WRITE}}

// newCodebase makes an empty codebase.
func (s *server) newCodebase(ctx context.Context) (string, error) {
	made, err := s.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: "bench", OwnerId: "bench"})
	return made.GetId(), err
}

// smallCodebase makes a codebase of one file.
func (s *server) smallCodebase(ctx context.Context) (string, error) {
	id, err := s.newCodebase(ctx)
	if err != nil {
		return "", err
	}
	return id, s.uploadFile(ctx, id, "README.md", []byte("# bench\n"))
}

func (s *server) uploadFile(ctx context.Context, codebase, path string, content []byte) error {
	up, err := s.codebases.UploadFiles(ctx)
	if err != nil {
		return err
	}
	// Where a message is not taken, the answer tells why.
	_ = up.Send(metadataChunk(codebase, path, len(content)))
	_ = up.Send(dataChunk(content))
	_, err = up.CloseAndRecv()
	return err
}

func metadataChunk(codebase, path string, size int) *sandboxv1.UploadChunk {
	m := &sandboxv1.UploadChunk_Metadata{CodebaseId: codebase, FilePath: path, TotalSize: int64(size)}
	return &sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: m}}
}

func dataChunk(content []byte) *sandboxv1.UploadChunk {
	return &sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: content}}
}

// newSandbox makes a sandbox of a codebase and starts it.
func (s *server) newSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (string, error) {
	r.Permissions = everything
	made, err := s.sandboxes.CreateSandbox(ctx, r)
	if err != nil {
		return "", err
	}
	_, err = s.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: made.Id})
	return made.Id, err
}

// freshSandbox is newSandbox of a codebase of its own.
func (s *server) freshSandbox(ctx context.Context) (string, error) {
	codebase, err := s.smallCodebase(ctx)
	if err != nil {
		return "", err
	}
	return s.newSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: codebase})
}

func (s *server) destroy(ctx context.Context, sandbox string) error {
	_, err := s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: sandbox})
	return err
}

// exec runs a command that is to succeed.
func (s *server) exec(ctx context.Context, sandbox, command string) error {
	r, err := s.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sandbox, Command: command})
	if err != nil {
		return err
	}
	return succeeded(command, r.ExitCode, r.Stderr)
}

func succeeded(command string, code int32, stderr string) error {
	if code != 0 {
		return fmt.Errorf("%s: exit code %d: %s", command, code, stderr)
	}
	return nil
}

// drain reads a stream to its end.
func drain[T any](stream grpc.ServerStreamingClient[T], each func(*T) error) error {
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := each(m); err != nil {
			return err
		}
	}
}
