package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		http int
		json string
	}{
		{codes.Canceled, 499, `{"code":1,"message":"m","details":[]}`},
		{codes.Unknown, 500, `{"code":2,"message":"m","details":[]}`},
		{codes.InvalidArgument, 400, `{"code":3,"message":"m","details":[]}`},
		{codes.DeadlineExceeded, 504, `{"code":4,"message":"m","details":[]}`},
		{codes.NotFound, 404, `{"code":5,"message":"m","details":[]}`},
		{codes.AlreadyExists, 409, `{"code":6,"message":"m","details":[]}`},
		{codes.PermissionDenied, 403, `{"code":7,"message":"m","details":[]}`},
		{codes.ResourceExhausted, 429, `{"code":8,"message":"m","details":[]}`},
		{codes.FailedPrecondition, 400, `{"code":9,"message":"m","details":[]}`},
		{codes.Aborted, 409, `{"code":10,"message":"m","details":[]}`},
		{codes.OutOfRange, 400, `{"code":11,"message":"m","details":[]}`},
		{codes.Unimplemented, 501, `{"code":12,"message":"m","details":[]}`},
		{codes.Internal, 500, `{"code":13,"message":"m","details":[]}`},
		{codes.Unavailable, 503, `{"code":14,"message":"m","details":[]}`},
		{codes.DataLoss, 500, `{"code":15,"message":"m","details":[]}`},
		{codes.Unauthenticated, 401, `{"code":16,"message":"m","details":[]}`},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			f := &fake{err: status.Error(c.code, "m")}
			url := serve(t, f, gateway.Options{})
			// A call of generated code, one that is a stream, an upload and a download.
			f.output = fails[output](f.err)
			f.download = fails[piece](f.err)
			for _, got := range []answer{
				do(t, "GET", url+"/v1/sandboxes/sb_1", ""),
				do(t, "POST", url+"/v1/sandboxes/sb_1/exec:stream", `{}`),
				do(t, "PUT", url+"/v1/codebases/cb_1/files/a", "data"),
				do(t, "GET", url+"/v1/codebases/cb_1/files/a", ""),
			} {
				if got.status != c.http || compact(t, got.body) != c.json {
					t.Errorf("%d %s, want %d %s", got.status, got.body, c.http, c.json)
				}
				if kind := got.header.Get("Content-Type"); kind != "application/json" {
					t.Errorf("Content-Type %q", kind)
				}
				if asks := got.header.Get("WWW-Authenticate") == "Bearer"; asks != (c.http == 401) {
					t.Errorf("WWW-Authenticate %q", got.header.Get("WWW-Authenticate"))
				}
			}
		})
	}
}

func TestDetailsOfAnError(t *testing.T) {
	st, err := status.New(codes.NotFound, "m").WithDetails(&errdetails.ErrorInfo{Reason: "R"})
	if err != nil {
		t.Fatal(err)
	}
	got := do(t, "GET", serve(t, &fake{err: st.Err()}, gateway.Options{})+"/v1/sandboxes/sb_1", "")
	want := `{"code":5,"message":"m","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"R","domain":"","metadata":{}}]}`
	if text := compact(t, got.body); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}

// What the gateway refuses, the service never gets.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		message                  string
	}{
		{"no JSON", "POST", "/v1/sandboxes", `{"a`, 400, "body: "},
		{"a second value", "POST", "/v1/sandboxes", `{} {}`, 400, "body: "},
		{"no UTF-8", "POST", "/v1/sandboxes", "{\"image\":\"\xff\"}", 400, "body: "},
		{"a field of another type", "POST", "/v1/sandboxes", `{"expiresIn":5}`, 400, "body: "},
		{"a field in both spellings", "POST", "/v1/sandboxes", `{"codebaseId":"a","codebase_id":"b"}`, 400, "body: "},
		{"a runtime that is none", "POST", "/v1/sandboxes", `{"runtime":"RUNTIME_TYPE_DOKCER"}`, 400, `unknown value "RUNTIME_TYPE_DOKCER"`},
		{"a pattern type that is none", "PUT", "/v1/sandboxes/sb_1/policy", `{"permissions":[{"pattern":"a"},{"pattern":"b","type":"FILE"}]}`, 400, `type: unknown value "FILE"`},
		{"a permission that is none", "POST", "/v1/sandboxes", `{"permissions":[{"permission":"none"}]}`, 400, `permission: unknown value "none"`},
		{"a field that one of our calls has not", "PUT", "/v1/sandboxes/sb_1/policy", `{"permision":[]}`, 400, `body: unknown field "permision"; want one of: permissions, `},
		{"the same, further in", "PUT", "/v1/sandboxes/sb_1/policy", `{"permissions":[{"pattern":"a","prio":1}]}`, 400, `body: unknown field "prio"; want one of: keep, keepKeys, origin, own, pattern, `},
		{"the same, to apply", "POST", "/v1/sandboxes/sb_1/apply", `{"dryRnu":true}`, 400, `body: unknown field "dryRnu"; want one of: `},
		{"a query that one of our calls has not", "GET", "/v1/sandboxes/sb_1/diff?pth=a", "", 400, `query: unknown field "pth"; want one of: `},
		{"a query that leads further than its field", "GET", "/v1/sandboxes/sb_1/diff?paths.a=b", "", 400, `query: unknown field "paths.a"`},
		{"the same, of a stream", "GET", "/v1/sandboxes/sb_1/audit:stream?folow=true", "", 400, `query: unknown field "folow"; want one of: `},
		{"the same, of a file of a view", "GET", "/v1/sandboxes/sb_1/view:read?pth=a", "", 400, `query: unknown field "pth"; want one of: `},
		{"the same, of an upload", "PUT", "/v1/codebases/cb_1/files/a?mod=755", "x", 400, `query: unknown field "mod"; want one of: mode, `},
		{"a size of an upload that is no number", "PUT", "/v1/codebases/cb_1/files/a?totalSize=x", "x", 400, `totalSize "x": want a number`},
		{"a query of another type", "GET", "/v1/sandboxes?page_size=x", "", 400, "page_size"},
		{"a query that is no query", "GET", "/v1/sandboxes?a=%zz", "", 400, "query: "},
		{"a query that is no UTF-8", "GET", "/v1/sandboxes?owner_id=%FF", "", 400, `query: "owner_id"`},
		{"an id that is no UTF-8", "GET", "/v1/sandboxes/%FF", "", 404, "not found"},
		{"an id with a slash", "GET", "/v1/sandboxes/sb_1%2Fstats", "", 404, "not found"},
		{"an id that would be another route", "DELETE", "/v1/codebases/cb_1%2Ffiles%2Fa", "", 404, "not found"},
		{"an id with a slash before a file", "GET", "/v1/codebases/a%2Fb/files/c", "", 404, "not found"},
		{"the path of a file that is no UTF-8", "GET", "/v1/codebases/cb_1/files/a/%FF", "", 400, "file_path: "},
		{"the same, to upload", "PUT", "/v1/codebases/cb_1/files/a/%FF", "x", 400, "file_path: "},
		{"the same, to delete", "DELETE", "/v1/codebases/cb_1/files/a/%FF", "", 400, "file_path: "},
		{"no such route", "GET", "/v1/nothing", "", 404, "not found"},
		{"a path out of the API", "GET", "/v1/../etc/passwd", "", 404, "not found"},
		{"no such method", "PUT", "/v1/sandboxes/sb_1", "", 405, "no such method"},
		{"no such method of a file", "PATCH", "/v1/codebases/cb_1/files/a", "", 405, "no such method"},
		{"a stream by GET", "GET", "/v1/sandboxes/sb_1/exec:stream", "", 405, "no such method"},
		{"a stream's body that is no JSON", "POST", "/v1/sandboxes/sb_1/exec:stream", `x`, 400, "body: "},
		{"a session stream's body that is no JSON", "POST", "/v1/sessions/sess_1/exec:stream", `{"timeout":1}`, 400, "body: "},
		{"a mode that is none", "PUT", "/v1/codebases/cb_1/files/a?mode=9", "", 400, `mode "9"`},
		{"a directory that is neither", "PUT", "/v1/codebases/cb_1/files/a?directory=x", "", 400, `directory "x"`},
		{"a watch query of another type", "GET", "/v1/sandboxes/sb_1/view:watch?recursive=x", "", 400, "recursive"},
		{"an audit query of another type", "GET", "/v1/sandboxes/sb_1/audit:stream?after_seq=x", "", 400, "after_seq"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{}
			got := do(t, c.method, serve(t, f, gateway.Options{})+c.path, c.body)
			if got.status != c.status || !strings.Contains(got.body, jsonInside(c.message)) {
				t.Errorf("%d %s, want %d and %q", got.status, got.body, c.status, c.message)
			}
			if n := f.count(); n != 0 {
				t.Errorf("the service got %d calls", n)
			}
		})
	}
}

// jsonInside is text as it stands inside a string of JSON.
func jsonInside(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }

func TestAnAuthorizationThatCannotBePassedOnIsRefused(t *testing.T) {
	f := &fake{answer: &sandboxv1.Sandbox{}}
	url := serve(t, f, gateway.Options{})
	for _, value := range []string{"Bearer \xff", "Bearer é", "Bearer\tx"} {
		got := do(t, "GET", url+"/v1/sandboxes/sb_1", "", header("Authorization", value))
		if got.status != 401 || f.count() != 0 {
			t.Errorf("%q: %d %s", value, got.status, got.body)
		}
	}
}

func TestAWrongTimeoutHeaderIsInvalid(t *testing.T) {
	url := serve(t, &fake{}, gateway.Options{})
	for _, path := range []string{"/v1/sandboxes/sb_1", "/v1/codebases/cb_1/files/a", "/v1/sandboxes/sb_1/audit:stream"} {
		if got := do(t, "GET", url+path, "", header("Grpc-Timeout", "soon")); got.status != 400 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := do(t, "GET", url+"/v1/sandboxes/sb_1/audit:stream", "", header("Last-Event-ID", "x")); got.status != 400 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestABodyIsBounded(t *testing.T) {
	f := &fake{}
	url := serve(t, f, gateway.Options{MaxBodyBytes: 100})
	long := `{"command":"` + strings.Repeat("x", 100) + `"}`
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/sb_1/exec", "/v1/sandboxes/sb_1/exec:stream", "/v1/sessions/sess_1/exec:stream"} {
		for _, got := range []answer{do(t, "POST", url+path, long), do(t, "POST", url+path, long, chunked)} {
			want := `{"code":8,"message":"the request's body is larger than 100 bytes","details":[]}`
			if got.status != 413 || compact(t, got.body) != want {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	}
	if n := f.count(); n != 0 {
		t.Errorf("the service got %d calls", n)
	}
}

func TestASilentBodyIsNotWaitedFor(t *testing.T) {
	f := &fake{}
	url := serve(t, f, gateway.Options{BodyTimeout: 20 * time.Millisecond})
	for _, path := range []string{"/v1/sandboxes/sb_1/exec", "/v1/codebases/cb_1/files/a"} {
		reads, writes := pipe(t)
		if _, err := writes.Write([]byte(`{`)); err != nil {
			t.Fatal(err)
		}
		got := do(t, "POST", url+path, "", func(r *http.Request) { r.Body, r.ContentLength = reads, -1 })
		if got.status != 400 || !strings.Contains(got.body, "timeout") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}
