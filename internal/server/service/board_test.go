package service_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Whose lock refused a write is told only to callers who may know the owner's sandboxes.
func TestTheHolderOfALockIsToldToReadersAlone(t *testing.T) {
	w := newWorld(t, manual)
	me := w.as("me", store.AllScopes)
	cb := w.codebase(me, "me")
	if err := w.upload(me, cb, "f", "old"); err != nil {
		t.Fatal(err)
	}
	holder, other := w.sandbox(me, cb), w.sandbox(me, cb)
	blind := w.as("me", store.ScopeExec)
	if _, err := w.board().LockPaths(me, &sandboxv1.LockPathsRequest{SandboxId: holder, Paths: []string{"f"}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ctx    context.Context
		isTold bool
	}{
		"with the scope read": {w.as("me", store.ScopeExec|store.ScopeRead), true},
		"with exec alone":     {blind, false},
	} {
		done := w.exec(c.ctx, other, "echo x > f || true")
		denied := done.GetDenied()
		if len(denied) != 1 || denied[0].Path != "f" || (denied[0].Lock != "") != c.isTold {
			t.Errorf("%s: %v", name, denied)
		}
	}
	_, err := w.board().ListLocks(blind, &sandboxv1.ListLocksRequest{SandboxId: other})
	wantCode(t, "the locks, without the scope read", err, codes.PermissionDenied)
}

// Nobody waits for messages longer than the documented minute.
func TestAWaitForMessagesIsBounded(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	sb := w.sandbox(ctx, w.codebase(ctx, "me"))
	for seconds, want := range map[int64]codes.Code{61: codes.InvalidArgument, -1: codes.InvalidArgument, 0: codes.OK} {
		_, err := w.board().ReadMessages(ctx, &sandboxv1.ReadMessagesRequest{SandboxId: sb, Wait: &durationpb.Duration{Seconds: seconds}})
		wantCode(t, "a wait of some seconds", err, want)
	}
}

func (w *world) board() sandboxv1.BoardServiceClient { return sandboxv1.NewBoardServiceClient(w.conn) }
