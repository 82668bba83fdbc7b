package reviewui

import (
	"context"
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// errTerminalGone ends a review.
var errTerminalGone = errdefs.New(errdefs.Canceled, "review: the terminal was closed; nothing more was applied")

// terminal is the input of a review, which ends when it cannot be read any more. The kernel sends
// SIGHUP to the leader of the session and to its foreground alone (setsid(2)), so a review below su
// may get none.
type terminal struct {
	*os.File
	end context.CancelCauseFunc
}

func (t terminal) Read(p []byte) (int, error) {
	n, err := t.File.Read(p)
	if err != nil {
		t.end(errTerminalGone)
	}
	return n, err
}
