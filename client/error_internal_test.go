//go:build linux

package client

import (
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// A reason determines the error, and the text does not.
func TestAReasonTellsErrorsApartAndNotTheText(t *testing.T) {
	kinds := map[error]bool{}
	for _, r := range errdefs.Reasons() {
		told, err := status.New(codes.FailedPrecondition, "some text").WithDetails(&errdetails.ErrorInfo{
			Reason: string(r), Domain: errdefs.ReasonDomain,
			Metadata: map[string]string{"resource": "files", "limit": "3", "started": "false", "status": "stopped"},
		})
		if err != nil {
			t.Fatal(err)
		}
		var e *Error
		if !errors.As(new(Client).fail(t.Context(), "x", told.Err()), &e) {
			t.Fatalf("%s: not an Error", r)
		}
		switch r {
		case errdefs.LimitExceeded:
			if e.Resource != "files" || e.Limit != 3 {
				t.Errorf("%s: %+v", r, e)
			}
		case errdefs.CommandNotStarted:
			if !e.NotStarted {
				t.Errorf("%s: %+v", r, e)
			}
		default:
			kind := ofReason[r]
			if kind == nil || kinds[kind] || !errors.Is(e, kind) {
				t.Errorf("%s: want a kind of its own, got %v in %v", r, kind, e.kinds)
			}
			kinds[kind] = true
		}
	}
	text := status.New(codes.FailedPrecondition, "sandbox is not running: session is closed").Err()
	if err := new(Client).fail(t.Context(), "x", text); errors.Is(err, ErrNotRunning) || errors.Is(err, ErrSessionClosed) {
		t.Errorf("the text alone makes %v", err)
	}
}
