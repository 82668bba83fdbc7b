package errdefs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestReasonOfAnError(t *testing.T) {
	absent := errdefs.WithReason(errdefs.New(errdefs.NotFound, "sandbox x: no such sandbox"), errdefs.SandboxNotFound)
	for _, tt := range []struct {
		name string
		err  error
		want errdefs.Reason
	}{
		{"the error itself", absent, errdefs.SandboxNotFound},
		{"a wrapped error", fmt.Errorf("exec: %w", absent), errdefs.SandboxNotFound},
		{"an error of the same kind around it", errdefs.New(errdefs.NotFound, "exec: %w", absent), errdefs.SandboxNotFound},
		{"an error of another kind around it", errdefs.New(errdefs.Unavailable, "exec: %w", absent), ""},
		{"no reason", errdefs.New(errdefs.NotFound, "x"), ""},
		{"no error", nil, ""},
	} {
		if got := errdefs.ReasonOf(tt.err); got != tt.want {
			t.Errorf("%s: ReasonOf = %q, want %q", tt.name, got, tt.want)
		}
	}
	if absent.Error() != "sandbox x: no such sandbox" || !errdefs.Is(absent, errdefs.NotFound) {
		t.Errorf("with a reason the error is %q of kind %s", absent, errdefs.KindOf(absent))
	}
}

func TestEachReasonIsDocumentedOnce(t *testing.T) {
	text, err := os.ReadFile("../../../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range errdefs.Reasons() {
		if n := strings.Count(string(text), "\n| `"+string(r)+"` |"); n != 1 {
			t.Errorf("docs/rest.md documents %s %d times, want once", r, n)
		}
	}
}
