package supervise

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

const (
	firstPause = 5 * time.Millisecond // after an accept that failed
	lastPause  = time.Second          // doubled up to this

	// spareFiles is how many control connections get in when this process has
	// no descriptor left: a stop among them.
	spareFiles = 4
)

// accepter is what acceptAll needs of a net.UnixListener.
type accepter interface {
	AcceptUnix() (*net.UnixConn, error)
}

// acceptAll calls each with every connection, until the listener is closed. Any
// other error passes: a client that has left, a host without memory, a process
// without descriptors (accept(2)).
func acceptAll(l accepter, log *slog.Logger, each func(*net.UnixConn)) {
	var s spare
	s.fill()
	defer s.release()
	pause := firstPause
	for {
		uc, err := l.AcceptUnix()
		switch {
		case err == nil:
			pause = firstPause
			each(uc)
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, unix.EMFILE) && s.release():
			continue // at once, with the descriptors that were kept for this
		default:
			if pause == firstPause {
				log.Warn("control: a connection cannot be accepted; trying again", "err", err)
			}
			time.Sleep(pause)
			pause = min(2*pause, lastPause)
		}
		s.fill()
	}
}

// spare keeps descriptors for when there are no others.
type spare struct{ files []*os.File }

// fill takes as many as are missing and there are.
func (s *spare) fill() {
	for len(s.files) < spareFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		s.files = append(s.files, f)
	}
}

// release gives them up, and tells whether there were any.
func (s *spare) release() bool {
	had := len(s.files) > 0
	api.CloseAll(s.files...)
	s.files = nil
	return had
}
