package safefs

import (
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestOwnErrorTellsAFullDiskFromOtherErrors(t *testing.T) {
	if err := OwnError("git", nil); err != nil {
		t.Errorf("without an error: %v", err)
	}
	for cause, want := range map[error]errdefs.Kind{
		&os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}: errdefs.Exhausted,
		unix.EDQUOT:      errdefs.Exhausted,
		unix.ENOENT:      errdefs.Internal,
		io.ErrShortWrite: errdefs.Internal,
	} {
		err := OwnError("git", cause)
		if errdefs.KindOf(err) != want || !strings.HasPrefix(err.Error(), "git: ") {
			t.Errorf("%v became %v, of kind %v; want %v", cause, err, errdefs.KindOf(err), want)
		}
	}
}
