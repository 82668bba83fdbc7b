package supervise

import (
	"errors"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/accept"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// spareFiles is how many control connections get in when this process has
// no descriptor left: a stop among them.
const spareFiles = 4

// accepter is what acceptAll needs of a net.UnixListener.
type accepter interface {
	AcceptUnix() (*net.UnixConn, error)
}

// acceptAll calls each with every connection, until the listener is closed. Any
// other error passes: a client that has left, a host without memory, a process
// without descriptors (accept(2)).
func acceptAll(l accepter, log *slog.Logger, each func(*net.UnixConn)) {
	var s spare
	defer s.release()
	for {
		s.fill()
		said := false
		uc, err := accept.Next(l.AcceptUnix, func(err error) bool {
			if errors.Is(err, unix.EMFILE) && s.release() {
				return true // at once, with the descriptors that were kept for this
			}
			if !said {
				log.Warn("control: a connection cannot be accepted; trying again", "err", err)
			}
			said = true
			s.fill()
			return false
		}, nil)
		if err != nil {
			return
		}
		each(uc)
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
