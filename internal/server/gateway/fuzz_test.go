package gateway_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

// An id, whatever it is, reaches the service as it was sent, by the route it was
// sent to, or is refused: never as another id, and never by another route.
func FuzzIDs(f *testing.F) {
	for _, id := range []string{
		"sb_0123456789abcdef", "", ".", "..", "../codebases", "a/b", "a%2Fb", "%", "a:exec", ":explain", "policy:explain", "\x00", "\xff", "é", "a b", "a?b#c", "exec:stream",
	} {
		f.Add(id)
	}
	s := &fake{
		answer:   &sandboxv1.Empty{},
		output:   sends(nil, exit(0)),
		audit:    sends[sandboxv1.AuditEvent](nil),
		watch:    sends[sandboxv1.WatchViewResponse](nil),
		download: func(grpc.ServerStreamingServer[piece]) error { return nil },
	}
	handler := handlerOf(f, s, gateway.Options{})
	f.Fuzz(func(t *testing.T, id string) {
		for _, c := range []struct {
			method, before, after, rpc string
			id                         func(proto.Message) string
		}{
			{"DELETE", "/v1/sandboxes/", "", "DestroySandbox", func(m proto.Message) string { return m.(*sandboxv1.DestroySandboxRequest).GetSandboxId() }},
			{"POST", "/v1/sandboxes/", "/exec", "Exec", func(m proto.Message) string { return m.(*sandboxv1.ExecRequest).GetSandboxId() }},
			{"POST", "/v1/sandboxes/", "/exec:stream", "ExecStream", func(m proto.Message) string { return m.(*sandboxv1.ExecRequest).GetSandboxId() }},
			{"DELETE", "/v1/codebases/", "", "DeleteCodebase", func(m proto.Message) string { return m.(*sandboxv1.DeleteCodebaseRequest).GetCodebaseId() }},
			{"GET", "/v1/codebases/", "/files/x", "DownloadFile", func(m proto.Message) string { return m.(*sandboxv1.DownloadFileRequest).GetCodebaseId() }},
			{"DELETE", "/v1/sessions/", "", "DestroySession", func(m proto.Message) string { return m.(*sandboxv1.DestroySessionRequest).GetSessionId() }},
		} {
			s.forget()
			got := record(t, handler, c.method, c.before+url.PathEscape(id)+c.after, "")
			if s.count() == 0 {
				if utf8.ValidString(id) && !strings.Contains(id, "/") {
					t.Errorf("%s of %q: %d %s", c.rpc, id, got.Code, got.Body)
				}
				continue
			}
			call := s.only(t)
			if !strings.HasSuffix(call.method, "/"+c.rpc) || c.id(call.requests[0]) != id {
				t.Errorf("%s of %q became %s of %v", c.rpc, id, call.method, call.requests)
			}
		}
	})
}

// The path of a file reaches the service byte for byte, or is no UTF-8 and
// refused.
func FuzzFilePaths(f *testing.F) {
	for _, path := range []string{
		"a/b.txt", "", "/", "//a", "..", "../../cb_2/files/x", "a/../b", "./a", "\x00", "\xff/a", "a%2Fb", "%2e%2e/", "policy:explain", ":explain", "exec:stream", "a?b#c", "é",
	} {
		f.Add(path, true)
		f.Add(path, false)
	}
	s := &fake{answer: &sandboxv1.Empty{}, download: func(grpc.ServerStreamingServer[piece]) error { return nil }}
	handler := handlerOf(f, s, gateway.Options{})
	f.Fuzz(func(t *testing.T, path string, escapeSlash bool) {
		escaped := url.PathEscape(path)
		if !escapeSlash {
			escaped = strings.ReplaceAll(escaped, "%2F", "/")
		}
		for _, method := range []string{"GET", "DELETE"} {
			s.forget()
			got := record(t, handler, method, "/v1/codebases/cb_1/files/"+escaped, "")
			if s.count() == 0 {
				if got.Code != http.StatusBadRequest || utf8.ValidString(path) {
					t.Errorf("%s of %q: %d %s", method, path, got.Code, got.Body)
				}
				continue
			}
			m := s.only(t).requests[0].(interface {
				GetCodebaseId() string
				GetFilePath() string
			})
			if m.GetCodebaseId() != "cb_1" || m.GetFilePath() != path {
				t.Errorf("%s of %q became %v", method, path, m)
			}
		}
	})
}

// Whatever is sent, the answer is one the interface has: JSON, and no panic.
func FuzzRequests(f *testing.F) {
	f.Add("POST", "/v1/sandboxes", `{"permissions":[{"type":{}}],"labels":{"a":[]},"resources":[[1]]}`)
	f.Add("POST", "/v1/sandboxes/x/exec:stream", `{"env":{"a":null},"timeout":"x"}`)
	f.Add("GET", "/v1/sandboxes?labels[a]=b&labels[", "")
	f.Add("GET", "/v1/sandboxes/x/audit:stream?since=1", "")
	f.Add("PUT", "/v1/codebases/x/files/..?mode=8", "x")
	f.Add("DELETE", "/v1//%2f/:explain", "null")
	s := &fake{
		answer: &sandboxv1.Empty{}, output: sends(nil, exit(0)), audit: sends[sandboxv1.AuditEvent](nil), watch: sends[sandboxv1.WatchViewResponse](nil), download: fails[piece](nil),
	}
	handler := handlerOf(f, s, gateway.Options{})
	f.Fuzz(func(t *testing.T, method, target, body string) {
		_, urlErr := url.ParseRequestURI(target)
		_, methodErr := http.NewRequestWithContext(t.Context(), method, "/", http.NoBody)
		if urlErr != nil || methodErr != nil || !strings.HasPrefix(target, "/v1") {
			return // no request that comes as far as here
		}
		s.forget()
		got := record(t, handler, method, target, body)
		if kind := got.Header().Get("Content-Type"); kind == "application/json" && !json.Valid(got.Body.Bytes()) && !strings.Contains(target, "audit") {
			t.Errorf("%d %s", got.Code, got.Body)
		} else if got.Code >= 500 && got.Code != http.StatusNotImplemented {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
}

// recorder records a response, as a connection that a deadline can be set on.
type recorder struct{ *httptest.ResponseRecorder }

func (recorder) SetReadDeadline(time.Time) error { return nil }

func record(t *testing.T, handler http.Handler, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.URL = parsed
	response := httptest.NewRecorder()
	handler.ServeHTTP(recorder{response}, r)
	return response
}
