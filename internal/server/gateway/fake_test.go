package gateway_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is a call as it reached the service.
type received struct {
	method   string
	requests []proto.Message // several for an upload
	metadata metadata.MD
}

// fake is all services: unary calls are answered by the interceptor, streams by
// the functions.
type fake struct {
	sandboxv1.UnimplementedSandboxServiceServer
	sandboxv1.UnimplementedCodebaseServiceServer
	sandboxv1.UnimplementedHistoryServiceServer
	sandboxv1.UnimplementedSnapshotServiceServer
	sandboxv1.UnimplementedBoardServiceServer
	sandboxv1.UnimplementedExportServiceServer

	answer proto.Message
	err    error
	wait   func(context.Context) error // of a unary call, before the answer; or nil

	output   func(grpc.ServerStreamingServer[sandboxv1.ExecOutput]) error
	audit    func(grpc.ServerStreamingServer[sandboxv1.AuditEvent]) error
	watch    func(grpc.ServerStreamingServer[sandboxv1.WatchViewResponse]) error
	download func(grpc.ServerStreamingServer[sandboxv1.FileChunk]) error
	// takes is after how many messages an upload is answered; 0: at its end.
	takes int

	mu    sync.Mutex
	calls []received
	last  error // why the last upload ended
}

// ended is why the last upload ended, nil if it was sent whole.
func (f *fake) ended() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *fake) record(ctx context.Context, method string, requests ...proto.Message) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, received{method, requests, md})
}

// only returns the one call that was made.
func (f *fake) only(t *testing.T) received {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) != 1 {
		t.Fatalf("the service got %d calls, want 1", len(f.calls))
	}
	return f.calls[0]
}

// forget makes the next call the first.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fake) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	f.record(ctx, info.FullMethod, request.(proto.Message))
	if err := grpc.SetHeader(ctx, metadata.Pairs("of-the-service", "x")); err != nil {
		return nil, err
	}
	if f.wait != nil {
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
	}
	return f.answer, f.err
}

func (f *fake) ExecStream(r *sandboxv1.ExecRequest, s grpc.ServerStreamingServer[sandboxv1.ExecOutput]) error {
	f.record(s.Context(), sandboxv1.SandboxService_ExecStream_FullMethodName, r)
	return f.output(s)
}

func (f *fake) SessionExecStream(r *sandboxv1.SessionExecRequest, s grpc.ServerStreamingServer[sandboxv1.ExecOutput]) error {
	f.record(s.Context(), sandboxv1.SandboxService_SessionExecStream_FullMethodName, r)
	return f.output(s)
}

func (f *fake) Audit(r *sandboxv1.AuditRequest, s grpc.ServerStreamingServer[sandboxv1.AuditEvent]) error {
	f.record(s.Context(), sandboxv1.SandboxService_Audit_FullMethodName, r)
	return f.audit(s)
}

func (f *fake) Logs(r *sandboxv1.LogsRequest, s grpc.ServerStreamingServer[sandboxv1.LogRecord]) error {
	f.record(s.Context(), sandboxv1.SandboxService_Logs_FullMethodName, r)
	return s.Send(&sandboxv1.LogRecord{ExecId: "exec-1", Stream: sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR, Data: []byte("x")})
}

func (f *fake) WatchView(r *sandboxv1.WatchViewRequest, s grpc.ServerStreamingServer[sandboxv1.WatchViewResponse]) error {
	f.record(s.Context(), sandboxv1.SandboxService_WatchView_FullMethodName, r)
	return f.watch(s)
}

func (f *fake) WatchMessages(r *sandboxv1.WatchMessagesRequest, s grpc.ServerStreamingServer[sandboxv1.ReadMessagesResponse]) error {
	f.record(s.Context(), sandboxv1.BoardService_WatchMessages_FullMethodName, r)
	return s.Send(&sandboxv1.ReadMessagesResponse{Next: 9})
}

func (f *fake) ExportChanges(r *sandboxv1.ExportChangesRequest, s grpc.ServerStreamingServer[sandboxv1.ExportChangesResponse]) error {
	f.record(s.Context(), sandboxv1.ExportService_ExportChanges_FullMethodName, r)
	if f.err != nil {
		return f.err
	}
	for _, m := range []*sandboxv1.ExportChangesResponse{
		{Message: &sandboxv1.ExportChangesResponse_Summary{Summary: &sandboxv1.ExportSummary{SizeBytes: 7, Entries: 2, Deletions: 1, LeftOut: 1}}},
		{Message: &sandboxv1.ExportChangesResponse_LeftOut{LeftOut: &sandboxv1.ExportLeftOut{Path: "a", Reason: "b"}}},
		{Message: &sandboxv1.ExportChangesResponse_Data{Data: []byte("one ")}},
		{Message: &sandboxv1.ExportChangesResponse_Data{Data: []byte("two")}},
	} {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) ReadView(r *sandboxv1.ReadViewRequest, s grpc.ServerStreamingServer[sandboxv1.ReadViewResponse]) error {
	f.record(s.Context(), sandboxv1.SandboxService_ReadView_FullMethodName, r)
	if f.err != nil {
		return f.err
	}
	for _, data := range []string{"one ", "two"} {
		if err := s.Send(&sandboxv1.ReadViewResponse{Data: []byte(data)}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) DownloadFile(r *sandboxv1.DownloadFileRequest, s grpc.ServerStreamingServer[sandboxv1.FileChunk]) error {
	f.record(s.Context(), sandboxv1.CodebaseService_DownloadFile_FullMethodName, r)
	return f.download(s)
}

func (f *fake) UploadFiles(s grpc.ClientStreamingServer[sandboxv1.UploadChunk, sandboxv1.UploadResult]) error {
	var chunks []proto.Message
	var last error
	for f.takes == 0 || len(chunks) < f.takes {
		chunk, err := s.Recv()
		if err != nil {
			last = err
			break
		}
		chunks = append(chunks, chunk)
	}
	if errors.Is(last, io.EOF) {
		last = nil
	}
	f.mu.Lock()
	f.last = last
	f.mu.Unlock()
	f.record(s.Context(), sandboxv1.CodebaseService_UploadFiles_FullMethodName, chunks...)
	if last != nil {
		return last
	}
	if f.err != nil {
		return f.err
	}
	result, _ := f.answer.(*sandboxv1.UploadResult)
	return s.SendAndClose(result)
}

// handlerOf serves f over gRPC in memory, and returns the gateway to it.
func handlerOf(t testing.TB, f *fake, o gateway.Options) http.Handler {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.UnaryInterceptor(f.unary))
	sandboxv1.RegisterSandboxServiceServer(server, f)
	sandboxv1.RegisterCodebaseServiceServer(server, f)
	sandboxv1.RegisterHistoryServiceServer(server, f)
	sandboxv1.RegisterSnapshotServiceServer(server, f)
	sandboxv1.RegisterBoardServiceServer(server, f)
	sandboxv1.RegisterExportServiceServer(server, f)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	o.Conn = conn
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	handler, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// serve serves f over HTTP. It returns the URL.
func serve(t *testing.T, f *fake, o gateway.Options) string {
	t.Helper()
	handler := handlerOf(t, f, o)
	server := httptest.NewUnstartedServer(handler)
	server.Config = gateway.Server(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// answer is an HTTP response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
	broken error // of reading the body
}

type option func(*http.Request)

func header(key, value string) option {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

func host(name string) option {
	return func(r *http.Request) { r.Host = name }
}

// client makes connections of its own, so that none is left over.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return errors.New("redirected to " + r.URL.String())
		},
	}
}

func do(t *testing.T, method, url, body string, options ...option) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range options {
		set(r)
	}
	response, err := client(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, broken := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text), broken}
}

// joined is what the messages of an upload carry.
func joined(requests []proto.Message) string {
	var all []byte
	for _, m := range requests {
		all = slices.Concat(all, m.(*sandboxv1.UploadChunk).GetData())
	}
	return string(all)
}
