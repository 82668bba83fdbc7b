package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/endpoint/dial"
)

// Every wait for a server has a limit, also if the caller's context has none.
const (
	answerPatience = time.Minute      // of a short call
	workPatience   = 10 * time.Minute // of a long call
	grace          = 15 * time.Second // of a command's call, in addition to the command's time-out
)

// slow are the long calls.
var slow = map[string]bool{
	sandboxv1.SandboxService_StartSandbox_FullMethodName:    true,
	sandboxv1.SandboxService_StopSandbox_FullMethodName:     true,
	sandboxv1.SandboxService_DestroySandbox_FullMethodName:  true,
	sandboxv1.SandboxService_Apply_FullMethodName:           true,
	sandboxv1.SandboxService_Discard_FullMethodName:         true,
	sandboxv1.SandboxService_Diff_FullMethodName:            true,
	sandboxv1.SandboxService_CreateSandbox_FullMethodName:   true,
	sandboxv1.SandboxService_ListCommits_FullMethodName:     true,
	sandboxv1.SandboxService_ApplyCommits_FullMethodName:    true,
	sandboxv1.CodebaseService_DeleteCodebase_FullMethodName: true,

	sandboxv1.SnapshotService_CreateSnapshot_FullMethodName:  true,
	sandboxv1.SnapshotService_RestoreSnapshot_FullMethodName: true,
	sandboxv1.SnapshotService_DeleteSnapshot_FullMethodName:  true,
	sandboxv1.SnapshotService_ForkSandbox_FullMethodName:     true,
	sandboxv1.SnapshotService_CompareStates_FullMethodName:   true,
	sandboxv1.SnapshotService_MergeSandbox_FullMethodName:    true,
	sandboxv1.HistoryService_Undo_FullMethodName:             true,
	sandboxv1.HistoryService_Redo_FullMethodName:             true,
	sandboxv1.ExportService_QuerySandbox_FullMethodName:      true, // it may wait for others
}

// patience is the limit of a call; 0: that of its command.
func patience(method string, request any) time.Duration {
	if slow[method] {
		return workPatience
	}
	if command, ok := request.(interface{ GetTimeout() *durationpb.Duration }); ok {
		if after := command.GetTimeout().AsDuration(); after > 0 {
			return after + grace
		}
		return 0
	}
	if waits, ok := request.(interface{ GetWait() *durationpb.Duration }); ok {
		return waits.GetWait().AsDuration() + answerPatience
	}
	return answerPatience
}

// bounded is a grpc.UnaryClientInterceptor with a time-out for the answer.
func bounded(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	limit := patience(method, request)
	if limit == 0 {
		return call(ctx, method, request, answer, conn, options...)
	}
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := call(inner, method, request, answer, conn, options...)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return status.Errorf(codes.Unavailable, "no answer within %s", limit)
	}
	return err
}

// again is the retry policy of calls that change nothing, for a server that cannot be reached.
const again = `{"methodConfig": [{
	"name": [
		{"service": "sandbox.v1.SandboxService", "method": "GetSandbox"}, {"service": "sandbox.v1.SandboxService", "method": "ListSandboxes"},
		{"service": "sandbox.v1.SandboxService", "method": "GetSession"}, {"service": "sandbox.v1.SandboxService", "method": "ListSessions"},
		{"service": "sandbox.v1.SandboxService", "method": "ListExecs"}, {"service": "sandbox.v1.SandboxService", "method": "Diff"},
		{"service": "sandbox.v1.SandboxService", "method": "ExplainPolicy"}, {"service": "sandbox.v1.SandboxService", "method": "ListView"},
		{"service": "sandbox.v1.SandboxService", "method": "GetStats"},
		{"service": "sandbox.v1.CodebaseService", "method": "GetCodebase"}, {"service": "sandbox.v1.CodebaseService", "method": "ListCodebases"},
		{"service": "sandbox.v1.CodebaseService", "method": "ListFiles"}, {"service": "grpc.health.v1.Health", "method": "Check"},
		{"service": "sandbox.v1.SnapshotService", "method": "ListSnapshots"}, {"service": "sandbox.v1.SnapshotService", "method": "CompareStates"},
		{"service": "sandbox.v1.HistoryService", "method": "ListTransactions"}, {"service": "sandbox.v1.SandboxService", "method": "ListCommits"},
		{"service": "sandbox.v1.BoardService", "method": "ListLocks"}, {"service": "sandbox.v1.BoardService", "method": "GetBoard"}
	],
	"retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}
}]}`

// firstAnswer waits for the first message of a call, whose context cancel ends.
func firstAnswer[A any](limit time.Duration, cancel context.CancelCauseFunc, receive func() (A, error)) (A, error) {
	waited := time.AfterFunc(limit, func() {
		cancel(failure("attach", "the server does not answer within "+limit.String(), ErrUnavailable))
	})
	defer waited.Stop()
	return receive()
}

// lasting makes a call that creates an object. The end of ctx does not interrupt it, because the
// object would stay and its id would be lost. If ctx has ended meanwhile, undo removes the object.
func lasting[Q, A any](ctx context.Context, call func(context.Context, Q, ...grpc.CallOption) (A, error), request Q, undo func(context.Context, A) error) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err
	}
	made, err := call(dial.Uninterrupted(ctx), request)
	if err != nil || ctx.Err() == nil {
		return made, err
	}
	return none, errors.Join(ctx.Err(), undo(context.WithoutCancel(ctx), made))
}
