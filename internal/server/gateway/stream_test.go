package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

type output = sandboxv1.ExecOutput

func out(data string) *output {
	return &output{Type: sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT, Data: []byte(data)}
}

func errout(data string) *output {
	return &output{Type: sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR, Data: []byte(data)}
}

func exit(code int32) *output { return &output{ExitCode: new(code)} }

// sends is a stream of these messages that ends with err.
func sends[T any](err error, messages ...*T) func(grpc.ServerStreamingServer[T]) error {
	return func(s grpc.ServerStreamingServer[T]) error {
		for _, m := range messages {
			if err := s.Send(m); err != nil {
				return err
			}
		}
		return err
	}
}

const (
	noEffects = `"execId":"","denied":[],"deniedCount":"0","changed":[],"changedCount":"0","syncHeld":false`
	exited    = "event: exit\ndata: {\"exitCode\":0,\"conflicts\":[],\"conflictCount\":\"0\"," + noEffects + "}\n\n"
)

func TestExecStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		output func(grpc.ServerStreamingServer[output]) error
		want   string
	}{
		{
			"both streams, an exit code and conflicts",
			sends(nil, out("a\r\n\nb"), errout("<&>"), &output{ExitCode: proto.Int32(3), Conflicts: []string{"x"}, ConflictCount: 2}),
			`event: stdout` + "\n" + `data: {"text":"a\r\n\nb"}` + "\n\n" +
				`event: stderr` + "\n" + `data: {"text":"<&>"}` + "\n\n" +
				`event: exit` + "\n" + `data: {"exitCode":3,"conflicts":["x"],"conflictCount":"2",` + noEffects + "}\n\n",
		},
		{
			"what it was refused and did",
			sends(nil, &output{
				ExitCode: proto.Int32(0), ExecId: "exec-1", DeniedCount: 7, ChangedCount: 1,
				Denied: []*sandboxv1.Denial{{
					Path: "<a", Operation: "open", Permission: sandboxv1.Permission_PERMISSION_NONE, Rule: "a", RuleIndex: 2, Pid: 3, Program: "cat", Count: 7,
				}},
				Changed: []*sandboxv1.FileChange{{Path: "b", Kind: sandboxv1.ChangeKind_CHANGE_KIND_RENAMED, OldPath: "c"}},
			}),
			`event: exit` + "\n" + `data: {"exitCode":0,"conflicts":[],"conflictCount":"0","execId":"exec-1",` +
				`"denied":[{"path":"<a","operation":"open","permission":"PERMISSION_NONE","rule":"a","ruleIndex":2,"pid":3,"program":"cat","count":"7","mount":"","lock":""}],"deniedCount":"7",` +
				`"changed":[{"path":"b","kind":"CHANGE_KIND_RENAMED","oldPath":"c","mount":""}],"changedCount":"1","syncHeld":false}` + "\n\n",
		},
		{"no output", sends(nil, exit(0)), exited},
		{"a detached command", sends(nil, &output{ExecId: "exec-1"}, exit(0)), "event: started\ndata: {\"execId\":\"exec-1\"}\n\n" + exited},
		{"what is no UTF-8", sends(nil, out("\x00\xff"), exit(0)), "event: stdout\ndata: {\"base64\":\"AP8=\"}\n\n" + exited},
		{
			"characters cut in two, on both streams",
			sends(nil, out("1\xe2\x82"), errout("2\xc3"), out("\xac3\xf0"), errout("\xb64"), out("\x9f\x98"), out("\x80"), exit(0)),
			"event: stdout\ndata: {\"text\":\"1\"}\n\n" + "event: stderr\ndata: {\"text\":\"2\"}\n\n" +
				"event: stdout\ndata: {\"text\":\"€3\"}\n\n" + "event: stderr\ndata: {\"text\":\"ö4\"}\n\n" +
				"event: stdout\ndata: {\"text\":\"😀\"}\n\n" + exited,
		},
		{
			"a character that is never ended", sends(nil, out("1\xe2\x82"), exit(0)),
			"event: stdout\ndata: {\"text\":\"1\"}\n\n" + "event: stdout\ndata: {\"base64\":\"4oI=\"}\n\n" + exited,
		},
		{
			"an error after output", sends(status.Error(codes.DeadlineExceeded, "too long"), out("a")),
			"event: stdout\ndata: {\"text\":\"a\"}\n\n" + "event: error\ndata: {\"code\":4,\"message\":\"too long\",\"details\":[]}\n\n",
		},
		{
			"no exit code", sends(nil, out("a")),
			"event: stdout\ndata: {\"text\":\"a\"}\n\n" + "event: error\ndata: {\"code\":13,\"message\":\"exec: it ended without an exit code\",\"details\":[]}\n\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{output: c.output}
			got := do(t, "POST", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1/exec:stream", `{"command":"c","sandbox_id":"sb_2","timeout":"3s","detach":true}`)
			// protojson varies its spaces.
			if text := strings.ReplaceAll(got.body, `, "`, `,"`); got.status != 200 || text != c.want {
				t.Errorf("%d\n%s\nwant\n%s", got.status, text, c.want)
			}
			if kind := got.header.Get("Content-Type"); kind != "text/event-stream" {
				t.Errorf("Content-Type %q", kind)
			}
			want := &sandboxv1.ExecRequest{SandboxId: "sb_1", Command: "c", Timeout: durationpb.New(3 * time.Second), Detach: true}
			if diff := cmp.Diff(proto.Message(want), f.only(t).requests[0], protocmp.Transform()); diff != "" {
				t.Errorf("the request differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSessionExecStream(t *testing.T) {
	f := &fake{output: sends(nil, out("a"), exit(0))}
	got := do(t, "POST", serve(t, f, gateway.Options{})+"/v1/sessions/sess_1/exec:stream", `{"command":"c"}`, header("Authorization", "Bearer x"))
	if want := "event: stdout\ndata: {\"text\":\"a\"}\n\n" + exited; got.status != 200 || got.body != want {
		t.Errorf("%d %s", got.status, got.body)
	}
	call := f.only(t)
	want := &sandboxv1.SessionExecRequest{SessionId: "sess_1", Command: "c"}
	if diff := cmp.Diff(proto.Message(want), call.requests[0], protocmp.Transform()); diff != "" {
		t.Errorf("the request differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Bearer x"}, call.metadata["authorization"]); diff != "" {
		t.Errorf("authorization (-want +got):\n%s", diff)
	}
}

// begin starts a request whose response is still being written.
func begin(t *testing.T, method, url, body string) (*http.Response, *bufio.Reader, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response, bufio.NewReader(response.Body), cancel
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Each message is sent on before the next one comes.
func TestAnEventIsNotKeptBack(t *testing.T) {
	next := make(chan *output)
	f := &fake{output: func(s grpc.ServerStreamingServer[output]) error {
		for m := range next {
			if err := s.Send(m); err != nil {
				return err
			}
		}
		return nil
	}}
	url := serve(t, f, gateway.Options{Heartbeat: time.Hour})
	go func() { next <- out("1") }()
	_, events, _ := begin(t, "POST", url+"/v1/sandboxes/sb_1/exec:stream", `{}`)
	for _, text := range []string{"1", "2", "3"} {
		if text != "1" {
			next <- out(text)
		}
		if got, want := line(t, events)+line(t, events)+line(t, events), "event: stdout\ndata: {\"text\":\""+text+"\"}\n\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	next <- exit(0)
	close(next)
	if got := line(t, events); got != "event: exit\n" {
		t.Error(got)
	}
}

func TestAStreamThatSaysNothingIsHeld(t *testing.T) {
	release := make(chan struct{})
	f := &fake{output: func(s grpc.ServerStreamingServer[output]) error {
		<-release
		return s.Send(exit(0))
	}}
	url := serve(t, f, gateway.Options{Heartbeat: time.Millisecond})
	response, events, _ := begin(t, "POST", url+"/v1/sandboxes/sb_1/exec:stream", `{}`)
	if response.StatusCode != 200 {
		t.Errorf("status %d", response.StatusCode)
	}
	for range 3 {
		if got := line(t, events) + line(t, events); got != ": still here\n\n" {
			t.Errorf("%q", got)
		}
	}
	close(release)
}

// The service's header says that it has begun: the client need not wait for
// output to know.
func TestTheServicesHeaderBeginsTheAnswer(t *testing.T) {
	release := make(chan struct{})
	f := &fake{output: func(s grpc.ServerStreamingServer[output]) error {
		if err := s.SendHeader(metadata.Pairs("x", "y")); err != nil {
			return err
		}
		<-release
		return s.Send(exit(0))
	}}
	url := serve(t, f, gateway.Options{Heartbeat: time.Hour})
	response, events, _ := begin(t, "POST", url+"/v1/sandboxes/sb_1/exec:stream", `{}`)
	if response.StatusCode != 200 || response.Header.Get("Grpc-Metadata-X") != "" {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
	close(release)
	if got := line(t, events); got != "event: exit\n" {
		t.Error(got)
	}
}

func TestAClientThatIsGoneEndsTheCall(t *testing.T) {
	for name, path := range map[string]string{
		"exec": "POST /v1/sandboxes/sb_1/exec:stream", "session": "POST /v1/sessions/sess_1/exec:stream",
		"audit": "GET /v1/sandboxes/sb_1/audit:stream", "watch": "GET /v1/sandboxes/sb_1/view:watch", "download": "GET /v1/codebases/cb_1/files/a",
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			wait := func(ctx context.Context) error {
				<-ctx.Done()
				ended <- ctx.Err()
				return ctx.Err()
			}
			f := &fake{
				output: func(s grpc.ServerStreamingServer[output]) error {
					if err := s.Send(out("a")); err != nil {
						return err
					}
					return wait(s.Context())
				},
				audit: func(s grpc.ServerStreamingServer[sandboxv1.AuditEvent]) error {
					if err := s.Send(&sandboxv1.AuditEvent{Seq: 1}); err != nil {
						return err
					}
					return wait(s.Context())
				},
				watch: func(s grpc.ServerStreamingServer[sandboxv1.WatchViewResponse]) error {
					if err := s.Send(&sandboxv1.WatchViewResponse{Lost: true}); err != nil {
						return err
					}
					return wait(s.Context())
				},
				download: func(s grpc.ServerStreamingServer[piece]) error {
					if err := sendPieces(s, []string{strings.Repeat("line\n", 5000)}); err != nil {
						return err
					}
					return wait(s.Context())
				},
			}
			method, rest, _ := strings.Cut(path, " ")
			_, events, leave := begin(t, method, serve(t, f, gateway.Options{Heartbeat: time.Hour})+rest, "")
			line(t, events)
			leave()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
}

func TestAClientThatIsGoneEndsAnExec(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	f := &fake{wait: func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	url := serve(t, f, gateway.Options{})
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/sandboxes/sb_1/exec", strings.NewReader(`{"command":"sleep"}`))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-begun
		leave()
	}()
	if response, err := client(t).Do(r); err == nil {
		response.Body.Close()
		t.Errorf("status %d", response.StatusCode)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
}

// The time for a body is over once the body is there.
func TestACommandMayTakeLongerThanABody(t *testing.T) {
	const patience = 10 * time.Millisecond
	wait := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * patience):
			return nil
		}
	}
	f := &fake{
		answer: &sandboxv1.ExecResult{},
		wait:   wait,
		output: func(s grpc.ServerStreamingServer[output]) error {
			if err := wait(s.Context()); err != nil {
				return err
			}
			return s.Send(exit(0))
		},
	}
	url := serve(t, f, gateway.Options{BodyTimeout: patience})
	for _, path := range []string{"/v1/sandboxes/sb_1/exec", "/v1/sandboxes/sb_1/exec:stream"} {
		if got := do(t, "POST", url+path, `{"command":"c"}`); got.status != 200 || got.broken != nil {
			t.Errorf("%s: %d %q %v", path, got.status, got.body, got.broken)
		}
	}
}

func TestAuditStream(t *testing.T) {
	event := &sandboxv1.AuditEvent{Seq: 1 << 60, Time: moment, Event: "permission_denied", Record: "{\"a\":1}\n"}
	since := timestamppb.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name, query, last string
		want              *sandboxv1.AuditRequest
	}{
		{name: "all", want: &sandboxv1.AuditRequest{}},
		{name: "some", query: "?events=a&events=b&afterSeq=7&since=2026-01-01T00:00:00Z", want: &sandboxv1.AuditRequest{Events: []string{"a", "b"}, AfterSeq: 7, Since: since}},
		{name: "again", query: "?after_seq=7&follow=false&sandbox_id=sb_2", last: "9", want: &sandboxv1.AuditRequest{AfterSeq: 9}},
		{name: "again, but later", query: "?after_seq=7", last: "3", want: &sandboxv1.AuditRequest{AfterSeq: 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{audit: sends(nil, event)}
			got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1/audit:stream"+c.query, "", header("Last-Event-ID", c.last))
			want := "id: 1152921504606846976\nevent: audit\ndata: " +
				`{"seq":"1152921504606846976","time":"2026-01-02T03:04:05.600Z","event":"permission_denied","record":"{\"a\":1}\n"}` + "\n\n"
			if text := strings.ReplaceAll(got.body, `, "`, `,"`); got.status != 200 || text != want {
				t.Errorf("%d\n%s\nwant\n%s", got.status, text, want)
			}
			c.want.SandboxId, c.want.Follow = "sb_1", true
			if diff := cmp.Diff(proto.Message(c.want), f.only(t).requests[0], protocmp.Transform()); diff != "" {
				t.Errorf("the request differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAuditStreamThatEndsAtOnceIsEmpty(t *testing.T) {
	got := do(t, "GET", serve(t, &fake{audit: sends[sandboxv1.AuditEvent](nil)}, gateway.Options{})+"/v1/sandboxes/sb_1/audit:stream", "")
	if got.status != 200 || got.body != "" || got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %q %v", got.status, got.body, got.header)
	}
}

func TestAuditInLines(t *testing.T) {
	f := &fake{audit: sends(nil, &sandboxv1.AuditEvent{Seq: 1}, &sandboxv1.AuditEvent{Seq: 2})}
	got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1/audit?events=a", "")
	want := `{"result":{"seq":"1","time":null,"event":"","record":""}}` + "\n" + `{"result":{"seq":"2","time":null,"event":"","record":""}}` + "\n"
	if text := strings.ReplaceAll(strings.ReplaceAll(got.body, `, "`, `,"`), `: `, `:`); got.status != 200 || text != want {
		t.Errorf("%d\n%s\nwant\n%s", got.status, text, want)
	}
	if diff := cmp.Diff(proto.Message(&sandboxv1.AuditRequest{SandboxId: "sb_1", Events: []string{"a"}}), f.only(t).requests[0], protocmp.Transform()); diff != "" {
		t.Errorf("the request differs (-want +got):\n%s", diff)
	}
}

func TestWatchView(t *testing.T) {
	f := &fake{watch: sends(nil,
		&sandboxv1.WatchViewResponse{Changes: []*sandboxv1.FileChange{{Path: "<a", Kind: sandboxv1.ChangeKind_CHANGE_KIND_DELETED}}},
		&sandboxv1.WatchViewResponse{Lost: true})}
	got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1/view:watch?path=d&recursive=true", "")
	want := "event: change\ndata: {\"changes\":[{\"path\":\"<a\",\"kind\":\"CHANGE_KIND_DELETED\",\"oldPath\":\"\",\"mount\":\"\"}],\"lost\":false}\n\n" +
		"event: change\ndata: {\"changes\":[],\"lost\":true}\n\n"
	if got.status != 200 || got.body != want {
		t.Errorf("%d %q, want %q", got.status, got.body, want)
	}
	asked := f.only(t).requests[0]
	if diff := cmp.Diff(&sandboxv1.WatchViewRequest{SandboxId: "sb_1", Path: "d", Recursive: true}, asked, protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// What detached commands wrote comes one object a line.
func TestLogs(t *testing.T) {
	f := &fake{}
	got := do(t, "GET", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1/logs?follow=true", "")
	const want = `{"result":{"time":null,"execId":"exec-1","argv":[],"continued":false,"stream":"OUTPUT_TYPE_STDERR","data":"eA==","lostBytes":"0"}}`
	if got.status != 200 || compact(t, got.body) != want {
		t.Errorf("%d %s, want\n%s", got.status, got.body, want)
	}
	asked := f.only(t).requests[0]
	if diff := cmp.Diff(&sandboxv1.LogsRequest{SandboxId: "sb_1", Follow: true}, asked, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}
