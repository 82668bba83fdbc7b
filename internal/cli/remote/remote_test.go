package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/transfer/scan"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// fake answers as a test says.
type fake struct {
	sandboxv1.UnimplementedCodebaseServiceServer
	sandboxv1.UnimplementedSandboxServiceServer
	upload func(sandboxv1.CodebaseService_UploadTreeServer) error
	attach func(sandboxv1.SandboxService_AttachServer) error
}

func (f *fake) UploadTree(s sandboxv1.CodebaseService_UploadTreeServer) error { return f.upload(s) }

func (f *fake) Attach(s sandboxv1.SandboxService_AttachServer) error { return f.attach(s) }

func (*fake) ListView(context.Context, *sandboxv1.ListViewRequest) (*sandboxv1.ListViewResponse, error) {
	return &sandboxv1.ListViewResponse{NextPageToken: "again"}, nil
}

func (*fake) Diff(context.Context, *sandboxv1.DiffRequest) (*sandboxv1.DiffResponse, error) {
	return &sandboxv1.DiffResponse{NextPageToken: "again"}, nil
}

func (*fake) ListSandboxes(context.Context, *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	return &sandboxv1.ListSandboxesResponse{NextPageToken: "again"}, nil
}

func (*fake) ListCodebases(context.Context, *sandboxv1.ListCodebasesRequest) (*sandboxv1.ListCodebasesResponse, error) {
	return &sandboxv1.ListCodebasesResponse{NextPageToken: "again"}, nil
}

func TestAPageThatIsItsOwnNextIsAnError(t *testing.T) {
	client := connected(t, new(fake))
	for name, list := range map[string]func() error{
		"view":      func() error { _, err := client.ListView(t.Context(), backend.Sandbox{}, "", false); return err },
		"diff":      func() error { _, err := client.Review(t.Context(), backend.Sandbox{}, nil, true, ""); return err },
		"sandboxes": func() error { _, err := client.Sandboxes(t.Context(), false); return err },
		"codebases": func() error { _, err := client.Codebases(t.Context(), ""); return err },
	} {
		if err := list(); !errdefs.Is(err, errdefs.Internal) || err.Error() != "the server returned the token of the same page" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// connected serves f on a socket and connects to it.
func connected(t *testing.T, f *fake) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	sandboxv1.RegisterCodebaseServiceServer(server, f)
	sandboxv1.RegisterSandboxServiceServer(server, f)
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	client, err := Dial(t.Context(), endpoint.Endpoint{Unix: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestAServerThatNeverAnswersIsGivenUp(t *testing.T) {
	for _, tls := range []bool{false, true} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // it takes connections, and says nothing
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err = Dial(ctx, endpoint.Endpoint{Host: "127.0.0.1", Port: port, TLS: tls})
		if !errdefs.Is(err, errdefs.Unavailable) || !strings.Contains(err.Error(), "nothing answers there") {
			t.Errorf("TLS %t: Dial = %v", tls, err)
		}
	}
}

func TestUploadTellsWhyItWasRefused(t *testing.T) {
	client := connected(t, &fake{upload: func(s sandboxv1.CodebaseService_UploadTreeServer) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		return status.Error(codes.ResourceExhausted, "upload /big: more than is allowed")
	}})
	big := filepath.Join(t.TempDir(), "big")
	const size = 64 << 20 // more than any window
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, size); err != nil {
		t.Fatal(err)
	}
	_, err := client.Upload(t.Context(), "cb_1", func() (scan.File, *os.File, error) {
		f, err := os.Open(big)
		return scan.File{Path: "/big", SizeBytes: size}, f, err
	})
	if !errdefs.Is(err, errdefs.Exhausted) || err.Error() != "upload /big: more than is allowed" {
		t.Errorf("Upload = %v", err)
	}
}

// Rules that no server can keep are refused before it has what they are about.
func TestRulesOfThisHostAloneAreRefusedBeforeTheUpload(t *testing.T) {
	for _, rule := range []policy.Rule{
		{Pattern: ".env", Permission: policy.Read, Transform: policy.Transform{Substitute: "\xff"}},
		{Pattern: "/state/", Permission: policy.Write, Keep: true},
	} {
		opened := false
		b := New(nil, func() (*record.Home, error) {
			opened = true
			return nil, errors.New("the upload begins")
		}, os.Getenv)
		_, err := b.Create(t.Context(), backend.NewSandbox{Source: record.Source{Path: record.HostPath(t.TempDir())}, Rules: backend.Rules{Rules: []policy.Rule{rule}}})
		if !errdefs.Is(err, errdefs.Invalid) || opened {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestUploadSendsWhatItAnnounced(t *testing.T) {
	var got []string
	client := connected(t, &fake{upload: func(s sandboxv1.CodebaseService_UploadTreeServer) error {
		for {
			chunk, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return s.SendAndClose(&sandboxv1.UploadTreeResult{FileCount: int64(len(got))})
			}
			if err != nil {
				return err
			}
			if m := chunk.GetMetadata(); m != nil {
				got = append(got, m.FilePath+" ")
			}
			got[len(got)-1] += string(chunk.GetData())
		}
	}})
	dir := t.TempDir()
	write := func(name, content string) scan.File {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return scan.File{Path: vpath.Path("/" + name), SizeBytes: int64(len(content))}
	}
	files := []scan.File{write("a", "one"), write("empty", ""), write("grown", "four")}
	write("grown", "four and more")
	upload := func(files []scan.File) (int64, error) {
		return client.Upload(t.Context(), "cb_1", func() (scan.File, *os.File, error) {
			if len(files) == 0 {
				return scan.File{}, nil, io.EOF
			}
			f := files[0]
			files = files[1:]
			content, err := os.Open(filepath.Join(dir, f.Path.Rel()))
			return f, content, err
		})
	}
	n, err := upload(files)
	if want := []string{"a one", "empty ", "grown four"}; err != nil || n != 3 || !slices.Equal(got, want) {
		t.Errorf("Upload = %d, %v; the server got %q, want %q", n, err, got, want)
	}
	shorter := write("shorter", "long content")
	write("shorter", "short")
	if _, err := upload([]scan.File{shorter}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Upload of a file that became shorter = %v", err)
	}
}

// A command that reads no input keeps what comes behind the input waiting.
func TestASignalBehindInputEndsTheCommand(t *testing.T) {
	client := connected(t, &fake{attach: func(s sandboxv1.SandboxService_AttachServer) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}})
	running, err := client.Attach(t.Context(), Call{SandboxID: "sb_1", Argv: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	a := running.(*attached)
	a.talk.Patience = 10 * time.Millisecond
	go func() {
		block := make([]byte, 1<<20)
		for a.gaveUp.Load() == 0 {
			_, _ = a.Write(block)
		}
	}()
	go func() {
		for a.gaveUp.Load() == 0 { // the first may still get past
			a.Signal(syscall.SIGINT)
		}
	}()
	exit, err := running.Wait(io.Discard, io.Discard)
	if err != nil || exit.Code != 130 {
		t.Errorf("Wait = %+v, %v, want 130", exit, err)
	}
}

func TestEveryCodeIsAKind(t *testing.T) {
	client := &Client{at: endpoint.Endpoint{Host: "localhost", Port: "1", Token: "x", TokenFrom: "AGENTFENSE_TOKEN"}}
	want := map[codes.Code]errdefs.Kind{
		codes.Unknown: errdefs.Internal, codes.Internal: errdefs.Internal, codes.DataLoss: errdefs.Internal,
		codes.Aborted: errdefs.Internal, codes.OutOfRange: errdefs.Internal,
		codes.InvalidArgument: errdefs.Invalid, codes.Unauthenticated: errdefs.Unauthenticated, codes.NotFound: errdefs.NotFound,
		codes.AlreadyExists: errdefs.Exists, codes.PermissionDenied: errdefs.Denied, codes.FailedPrecondition: errdefs.Precondition,
		codes.ResourceExhausted: errdefs.Exhausted, codes.Unavailable: errdefs.Unavailable, codes.Canceled: errdefs.Canceled,
		codes.DeadlineExceeded: errdefs.Deadline, codes.Unimplemented: errdefs.Unsupported,
	}
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		err := client.failed(status.Error(code, "what the server said"))
		if got := errdefs.KindOf(err); got != want[code] {
			t.Errorf("%s is %s, want %s", code, got, want[code])
		}
		if !strings.Contains(err.Error(), "what the server said") {
			t.Errorf("%s: %v", code, err)
		}
	}
	if err := client.failed(nil); err != nil {
		t.Error(err)
	}
}
