//go:build linux

package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestEveryWaitForAnAnswerHasALimit(t *testing.T) {
	for _, tt := range []struct {
		name    string
		method  string
		request any
		want    time.Duration
	}{
		{"a question", sandboxv1.SandboxService_GetSandbox_FullMethodName, &sandboxv1.GetSandboxRequest{}, answerPatience},
		{"a start", sandboxv1.SandboxService_StartSandbox_FullMethodName, &sandboxv1.StartSandboxRequest{}, workPatience},
		{"a command with a time-out", sandboxv1.SandboxService_Exec_FullMethodName, &sandboxv1.ExecRequest{Timeout: durationpb.New(time.Hour)}, time.Hour + grace},
		{"a command, which the server bounds", sandboxv1.SandboxService_Exec_FullMethodName, &sandboxv1.ExecRequest{}, 0},
		{"a lock that waits", sandboxv1.BoardService_LockPaths_FullMethodName, &sandboxv1.LockPathsRequest{Wait: durationpb.New(time.Hour)}, time.Hour + answerPatience},
		{"a session's command", sandboxv1.SandboxService_SessionExec_FullMethodName, &sandboxv1.SessionExecRequest{Timeout: durationpb.New(time.Second)}, time.Second + grace},
	} {
		if got := patience(tt.method, tt.request); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// What is sent again is a call of the API, and one that changes nothing: REST
// has it as GET, or it is about a command's list. ListAsks waits, and its
// callers go on by themselves.
func TestOnlyWhatReadsIsSentAgain(t *testing.T) {
	var config struct {
		MethodConfig []struct {
			Name []struct{ Service, Method string }
		}
	}
	if err := json.Unmarshal([]byte(again), &config); err != nil {
		t.Fatal(err)
	}
	calls := map[string]bool{"grpc.health.v1.Health/Check": true}
	var files []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("sandbox.v1", func(file protoreflect.FileDescriptor) bool {
		files = append(files, file)
		return true
	})
	for _, file := range files {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				name := string(m.Name())
				reads := strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") && name != "ListAsks" || name == "Diff" || name == "CompareStates" || name == "ExplainPolicy"
				calls[string(s.FullName())+"/"+name] = reads && !m.IsStreamingServer()
			}
		}
	}
	for _, name := range config.MethodConfig[0].Name {
		if !calls[name.Service+"/"+name.Method] {
			t.Errorf("%s/%s is sent again", name.Service, name.Method)
		}
		delete(calls, name.Service+"/"+name.Method)
	}
	for name, reads := range calls {
		if reads {
			t.Errorf("%s reads, and is not sent again", name)
		}
	}
}

func TestAPageThatIsItsOwnNextIsAnError(t *testing.T) {
	asked := 0
	var got []string
	var last error
	for one, err := range pages(func(token string) ([]string, string, error) {
		asked++
		return []string{token}, "again", nil
	}, strings.ToUpper) {
		if last = err; err == nil {
			got = append(got, one)
		}
	}
	if asked != 2 || len(got) != 1 || !errors.Is(last, ErrInternal) || last.Error() != "list: the server returned the token of the same page" {
		t.Errorf("asked %d times for %q, %v", asked, got, last)
	}
}

func TestWhatIsMadeForNobodyIsUndone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	call := func(inner context.Context, request string, _ ...grpc.CallOption) (string, error) {
		cancel() // while the server works
		return request, inner.Err()
	}
	var undone string
	_, err := lasting(ctx, call, "thing", func(ctx context.Context, made string) error {
		undone = made
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || undone != "thing" {
		t.Errorf("%v, undone %q", err, undone)
	}
	if _, err := lasting(ctx, call, "thing", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended before: %v", err)
	}
}

func TestFirstAnswerIsNotWaitedForWithoutAnEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := firstAnswer(time.Millisecond, cancel, func() (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	if err = new(Client).fail(ctx, "attach", err); !errors.Is(err, ErrUnavailable) || err.Error() != "attach: the server does not answer within 1ms" {
		t.Error(err)
	}
	if got, err := firstAnswer(time.Hour, cancel, func() (string, error) { return "here", nil }); got != "here" || err != nil {
		t.Error(got, err)
	}
}

// Who has set a deadline is told of it, also by a server whose clock is a moment
// ahead.
func TestDeadlineOfTheCallerIsNoTimeOutOfTheCommand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := new(Client).fail(ctx, "run", status.Error(codes.DeadlineExceeded, "context deadline exceeded"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	later, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	err = new(Client).fail(later, "run", status.Error(codes.DeadlineExceeded, "command timed out"))
	if !errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
