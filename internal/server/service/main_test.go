package service_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/service"
	"github.com/agentfense/agentfense/internal/server/store"
)

// The test binary plays the process of a query, the supervisor, PID 1 inside and the exec leaders.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guest.InitVerb:
			guest.Main()
			return
		case guest.ExecVerb:
			guest.ExecMain()
			return
		case query.Verb:
			os.Exit(query.Main())
		case launch.Verb:
			os.Exit(supervise.Main(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// world is a service with clients of it.
type world struct {
	t           testing.TB
	conn        *grpc.ClientConn
	home        *record.Home
	store       *store.Store
	interceptor service.AuthInterceptor
	codebases   sandboxv1.CodebaseServiceClient
	sandboxes   sandboxv1.SandboxServiceClient
	snapshots   sandboxv1.SnapshotServiceClient
	history     sandboxv1.HistoryServiceClient
}

// newWorld starts a service over an in-memory connection, with the
// configuration that change makes of the default one.
func newWorld(t testing.TB, change func(*config.Config)) *world {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	home, err := record.OpenHomeAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	if change != nil {
		change(c)
	}
	c.UnderHome(home.Dir())
	db, err := store.Open(t.Context(), c.Storage.DBPath, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(logOf(t), nil))
	files, err := codebase.Open(codebase.Options{
		Dir: c.Storage.CodebasePath, Home: home.Dir(), Observer: service.Observer{Store: db, Log: log}, Limits: service.CodebaseLimits(c.Limits), OwnerOf: service.OwnerOf(db),
	})
	if err != nil {
		t.Fatal(err)
	}
	token, err := auth.DefaultToken(filepath.Join(home.Dir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	who, err := auth.New(db, auth.Options{DefaultToken: token, NoAuth: true, Addrs: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(service.Options{Config: c, Home: home, Store: db, Codebases: files, Auth: who, Log: log})
	if err := s.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(s.AuthInterceptor().Unary), grpc.StreamInterceptor(s.AuthInterceptor().Stream))
	s.Register(server)
	pipe := bufconn.Listen(1 << 20)
	go server.Serve(pipe)
	conn, err := grpc.NewClient("passthrough:///service", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, conn: conn, home: home, store: db, interceptor: s.AuthInterceptor(),
		codebases: sandboxv1.NewCodebaseServiceClient(conn), sandboxes: sandboxv1.NewSandboxServiceClient(conn),
		snapshots: sandboxv1.NewSnapshotServiceClient(conn),
		history:   sandboxv1.NewHistoryServiceClient(conn),
	}
	t.Cleanup(func() {
		w.removeAll()
		conn.Close()
		server.Stop()
		s.Close()
		if err := files.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// removeAll ends and removes every sandbox.
func (w *world) removeAll() {
	all, err := w.home.List()
	if err != nil {
		w.t.Error(err)
	}
	for _, sb := range all {
		if _, err := supervise.End(context.Background(), sb, supervise.StopPatience); err != nil {
			w.t.Error(err)
		}
		if err := w.home.Remove(sb.Name()); err != nil {
			w.t.Error(err)
		}
	}
}

type testLog struct{ t testing.TB }

// logOf is where the service's log goes: a fuzz target's may not be written to
// while it runs.
func logOf(t testing.TB) io.Writer {
	if _, is := t.(*testing.F); is {
		return io.Discard
	}
	return &testLog{t}
}

func (l *testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

// as is a context that shows a new token with an owner and scopes.
func (w *world) as(owner string, scopes store.Scopes) context.Context {
	w.t.Helper()
	token, err := auth.Issue(w.t.Context(), w.store, auth.Grant{Name: owner + " " + scopes.String(), Owner: owner, Scopes: scopes}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return metadata.AppendToOutgoingContext(w.t.Context(), "authorization", "Bearer "+token)
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: error = %v, want %s", what, err, want)
	}
}

// codebase makes a codebase of an owner.
func (w *world) codebase(ctx context.Context, owner string) string {
	w.t.Helper()
	made, err := w.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: "app", OwnerId: owner})
	if err != nil {
		w.t.Fatal(err)
	}
	return made.Id
}

// upload stores a file.
func (w *world) upload(ctx context.Context, id, path, content string) error {
	w.t.Helper()
	up, err := w.codebases.UploadFiles(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: id, FilePath: path}}})
	_ = up.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: []byte(content)}})
	_, err = up.CloseAndRecv()
	return err
}

// download returns a file's content.
func (w *world) download(ctx context.Context, id, path string) (string, error) {
	w.t.Helper()
	down, err := w.codebases.DownloadFile(ctx, &sandboxv1.DownloadFileRequest{CodebaseId: id, FilePath: path})
	if err != nil {
		w.t.Fatal(err)
	}
	chunk, err := down.Recv()
	return string(chunk.GetData()), err
}

var everything = []*sandboxv1.PermissionRule{{Pattern: "**/*", Permission: sandboxv1.Permission_PERMISSION_WRITE}}

// sandbox makes a sandbox and starts it.
func (w *world) sandbox(ctx context.Context, codebase string) string {
	w.t.Helper()
	made, err := w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: codebase, Permissions: everything})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: made.Id}); err != nil {
		w.t.Fatal(err)
	}
	return made.Id
}
