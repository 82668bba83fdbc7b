package gateway_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

type piece = sandboxv1.FileChunk

// fails is a stream that ends at once.
func fails[T any](err error) func(grpc.ServerStreamingServer[T]) error {
	return func(grpc.ServerStreamingServer[T]) error { return err }
}

// pipe is a request's body that the test writes.
func pipe(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	reads, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writes.Close() })
	return reads, writes
}

func TestUpload(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 20000) // five pieces
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, c := range []struct {
		name, method, path, body string
		set                      option
		want                     *sandboxv1.UploadChunk_Metadata
	}{
		{name: "a file", method: "PUT", path: "a/b.txt", body: "hello", want: &sandboxv1.UploadChunk_Metadata{FilePath: "a/b.txt", TotalSize: 5}},
		{name: "by POST", method: "POST", path: "b", body: "hello", want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", TotalSize: 5}},
		{name: "an empty file", method: "PUT", path: "b", want: &sandboxv1.UploadChunk_Metadata{FilePath: "b"}},
		{name: "several pieces", method: "PUT", path: "b", body: big, want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", TotalSize: int64(len(big))}},
		{name: "of unknown length", method: "PUT", path: "b", body: big, set: chunked, want: &sandboxv1.UploadChunk_Metadata{FilePath: "b"}},
		{name: "of a length that only the query tells", method: "PUT", path: "b?totalSize=5", body: "hello", set: chunked, want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", TotalSize: 5}},
		{name: "the same, in the other spelling", method: "PUT", path: "b?total_size=5", body: "hello", set: chunked, want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", TotalSize: 5}},
		{name: "with a mode", method: "PUT", path: "b?mode=0755", body: "x", want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", TotalSize: 1, Mode: 0o755}},
		{name: "a symbolic link", method: "PUT", path: "b?symlink_target=../c%20d", want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", SymlinkTarget: "../c d"}},
		{name: "a symbolic link, in the other spelling", method: "PUT", path: "b?symlinkTarget=c", want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", SymlinkTarget: "c"}},
		{name: "a directory", method: "PUT", path: "b?directory=true", want: &sandboxv1.UploadChunk_Metadata{FilePath: "b", Directory: true}},
		{name: "a name that is no UTF-8", method: "PUT", path: `a/%5Cxffb`, body: "x", want: &sandboxv1.UploadChunk_Metadata{FilePath: `a/\xffb`, TotalSize: 1}},
		{name: "a name with all that URLs reserve", method: "PUT", path: "a%2Fb%3Fc%23d%25:explain", body: "x", want: &sandboxv1.UploadChunk_Metadata{FilePath: "a/b?c#d%:explain", TotalSize: 1}},
		// The service refuses these; the path must reach it as it is.
		{name: "a path out of the codebase", method: "PUT", path: "../../cb_2/files/x", body: "x", want: &sandboxv1.UploadChunk_Metadata{FilePath: "../../cb_2/files/x", TotalSize: 1}},
		{name: "the same, escaped", method: "PUT", path: "%2e%2e/..%2fx%00", body: "x", want: &sandboxv1.UploadChunk_Metadata{FilePath: "../../x\x00", TotalSize: 1}},
		{name: "an absolute path", method: "PUT", path: "/etc/passwd", body: "x", want: &sandboxv1.UploadChunk_Metadata{FilePath: "/etc/passwd", TotalSize: 1}},
		{name: "no path", method: "PUT", body: "x", want: &sandboxv1.UploadChunk_Metadata{TotalSize: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{answer: &sandboxv1.UploadResult{CodebaseId: "cb_1", FilePath: "p", Size: 5, Checksum: "5d"}}
			if c.set == nil {
				c.set = func(*http.Request) {}
			}
			got := do(t, c.method, serve(t, f, gateway.Options{MaxBodyBytes: 1})+"/v1/codebases/cb_1/files/"+c.path, c.body, c.set, header("Authorization", "Bearer x"))
			if want := `{"codebaseId":"cb_1","filePath":"p","size":"5","checksum":"5d"}`; got.status != 200 || compact(t, got.body) != want {
				t.Fatalf("%d %s", got.status, got.body)
			}
			call := f.only(t)
			c.want.CodebaseId = "cb_1"
			if diff := cmp.Diff(c.want, call.requests[0].(*sandboxv1.UploadChunk).GetMetadata(), protocmp.Transform()); diff != "" {
				t.Errorf("the metadata differs (-want +got):\n%s", diff)
			}
			if joined(call.requests[1:]) != c.body {
				t.Errorf("%d bytes came, %d were sent, or others", len(joined(call.requests)), len(c.body))
			}
			if diff := cmp.Diff([]string{"Bearer x"}, call.metadata["authorization"]); diff != "" {
				t.Errorf("authorization (-want +got):\n%s", diff)
			}
		})
	}
}

// A body that breaks off must not end as a file that ends there.
func TestABrokenUploadIsCanceled(t *testing.T) {
	for name, length := range map[string]int64{"of a known length": 200000, "of an unknown length": -1} {
		t.Run(name, func(t *testing.T) {
			f := &fake{answer: &sandboxv1.UploadResult{}}
			url := serve(t, f, gateway.Options{})
			body := io.MultiReader(bytes.NewReader(make([]byte, 100000)), broken{})
			r, err := http.NewRequestWithContext(t.Context(), "PUT", url+"/v1/codebases/cb_1/files/a", body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = length
			if response, err := client(t).Do(r); err == nil {
				response.Body.Close()
				t.Errorf("status %d", response.StatusCode)
			}
			testenv.Eventually(t, "the service is asked", func() bool { return f.count() == 1 })
			if got := f.ended(); status.Code(got) != codes.Canceled {
				t.Errorf("the service's stream ended with %v", got)
			}
		})
	}
}

// A client may end what it sends, and still wait for the answer.
func TestAnUploadThatEndsTooEarlyIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"of a known length":    "Content-Length: 10\r\n\r\n12345",
		"of an unknown length": "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{answer: &sandboxv1.UploadResult{}}
			url := serve(t, f, gateway.Options{})
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "PUT /v1/codebases/cb_1/files/a HTTP/1.1\r\nHost: localhost\r\n"+body); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d", response.StatusCode)
			}
			testenv.Eventually(t, "the service is asked", func() bool { return f.count() == 1 })
			if got := f.ended(); status.Code(got) != codes.Canceled {
				t.Errorf("the service's stream ended with %v", got)
			}
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAnUploadThatTheServiceEndsEarly(t *testing.T) {
	big := strings.Repeat("x", 4<<20)
	f := &fake{takes: 1, err: status.Error(codes.FailedPrecondition, "linked")}
	got := do(t, "PUT", serve(t, f, gateway.Options{})+"/v1/codebases/cb_1/files/a", big)
	if got.status != 400 || !strings.Contains(got.body, "linked") {
		t.Errorf("%d %s", got.status, got.body)
	}
	f = &fake{takes: 2, answer: &sandboxv1.UploadResult{}}
	got = do(t, "PUT", serve(t, f, gateway.Options{})+"/v1/codebases/cb_1/files/a", big)
	if got.status != 500 {
		t.Errorf("what was not taken was answered with %d %s", got.status, got.body)
	}
}

func TestDownload(t *testing.T) {
	for _, c := range []struct {
		name, path string
		pieces     []string
		want       *sandboxv1.DownloadFileRequest
	}{
		{name: "a file", path: "a/b.html", pieces: []string{"\x00\xff", "<b>"}, want: &sandboxv1.DownloadFileRequest{FilePath: "a/b.html"}},
		{name: "an empty file", path: "a", want: &sandboxv1.DownloadFileRequest{FilePath: "a"}},
		{name: "a name that is no UTF-8", path: "%5cxff", want: &sandboxv1.DownloadFileRequest{FilePath: `\xff`}},
		{name: "a name that looks like another route", path: "x/policy:explain", want: &sandboxv1.DownloadFileRequest{FilePath: "x/policy:explain"}},
		{name: "a path out of the codebase", path: "../../../etc/passwd", want: &sandboxv1.DownloadFileRequest{FilePath: "../../../etc/passwd"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{download: func(s grpc.ServerStreamingServer[piece]) error { return sendPieces(s, c.pieces) }}
			got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/codebases/cb_1/files/"+c.path, "", header("Authorization", "Bearer x"))
			if got.status != 200 || got.body != strings.Join(c.pieces, "") || got.broken != nil {
				t.Errorf("%d %q %v", got.status, got.body, got.broken)
			}
			for key, want := range map[string]string{
				"Content-Type": "application/octet-stream", "Content-Disposition": "attachment",
				"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'",
			} {
				if value := got.header.Get(key); value != want {
					t.Errorf("%s: %q, want %q", key, value, want)
				}
			}
			call := f.only(t)
			c.want.CodebaseId = "cb_1"
			if diff := cmp.Diff(c.want, call.requests[0], protocmp.Transform()); diff != "" {
				t.Errorf("the request differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"Bearer x"}, call.metadata["authorization"]); diff != "" {
				t.Errorf("authorization (-want +got):\n%s", diff)
			}
		})
	}
}

func sendPieces(s grpc.ServerStreamingServer[piece], pieces []string) error {
	for _, p := range pieces {
		if err := s.Send(&piece{Data: []byte(p)}); err != nil {
			return err
		}
	}
	return nil
}

// A download that fails on its way must not look whole.
func TestABrokenDownloadBreaksOff(t *testing.T) {
	f := &fake{download: func(s grpc.ServerStreamingServer[piece]) error {
		if err := sendPieces(s, []string{strings.Repeat("x", 1<<16)}); err != nil {
			return err
		}
		return status.Error(codes.Internal, "the disk")
	}}
	got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/codebases/cb_1/files/a", "")
	if got.status != 200 || got.broken == nil {
		t.Errorf("%d, %d bytes, %v", got.status, len(got.body), got.broken)
	}
}

func TestReadView(t *testing.T) {
	f := &fake{}
	got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1/view:read?path=a/b%20c", "")
	if got.status != 200 || got.body != "one two" || got.header.Get("Content-Type") != "application/octet-stream" || got.header.Get("Content-Disposition") != "attachment" {
		t.Errorf("%+v", got)
	}
	want := &sandboxv1.ReadViewRequest{SandboxId: "sb_1", Path: "a/b c"}
	if request := f.only(t).requests[0]; !proto.Equal(request, want) {
		t.Errorf("request %v, want %v", request, want)
	}
	refused := do(t, "GET", serve(t, &fake{err: status.Error(codes.PermissionDenied, "shown by name")}, gateway.Options{})+"/v1/sandboxes/sb_1/view:read?path=a", "")
	if refused.status != 403 || !strings.Contains(refused.body, "shown by name") {
		t.Errorf("%+v", refused)
	}
}
