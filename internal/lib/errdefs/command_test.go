package errdefs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// reworded is an error with another text.
type reworded struct{ error }

func (r reworded) Error() string { return "(state) " + r.error.Error() }
func (r reworded) Unwrap() error { return r.error }

func TestPlainHasNoCommands(t *testing.T) {
	err := errdefs.New(errdefs.NotFound, "no snapshot %q; list them%s", "x", errdefs.Command("snapshot ls a"))
	const text, plain = `no snapshot "x"; list them: agentfense snapshot ls a`, `no snapshot "x"; list them`
	for name, c := range map[string]struct {
		err         error
		text, plain string
	}{
		"the error":       {err, text, plain},
		"a cause":         {errdefs.New(errdefs.Internal, "merge: %w", err), "merge: " + text, "merge: " + plain},
		"two errors":      {errors.Join(err, errors.New("other")), text + "\nother", plain + "\nother"},
		"several causes":  {fmt.Errorf("%w, %w", errors.New("other"), err), "other, " + text, "other, " + plain},
		"another text":    {reworded{err}, "(state) " + text, "(state) " + plain},
		"with a reason":   {errdefs.WithReason(err, errdefs.SandboxRunning), text, plain},
		"without command": {errors.New(": agentfense x"), ": agentfense x", ": agentfense x"},
	} {
		if got := c.err.Error(); got != c.text {
			t.Errorf("%s: the text is %q", name, got)
		}
		if got := errdefs.Plain(c.err); got != c.plain {
			t.Errorf("%s: plain is %q", name, got)
		}
	}
}
