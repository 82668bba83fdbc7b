package supervise

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// faulty answers accept with errors, nil being a connection, then as a closed
// listener does.
type faulty struct{ answers []error }

func (f *faulty) AcceptUnix() (*net.UnixConn, error) {
	if len(f.answers) == 0 {
		return nil, &net.OpError{Op: "accept", Err: net.ErrClosed}
	}
	err := f.answers[0]
	f.answers = f.answers[1:]
	if err != nil {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return nil, nil
}

func TestOnlyAClosedListenerEndsAccepting(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []error
		want    int
	}{
		{"a closed listener", nil, 0},
		{"clients that have left", []error{unix.ECONNABORTED, nil, unix.ECONNABORTED, nil}, 2},
		{"a process without descriptors", slices.Concat(slices.Repeat([]error{unix.EMFILE}, 100), []error{nil}), 1},
		{"a host without them", []error{nil, unix.ENFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, nil}, 2},
		{"an error that nobody has thought of", []error{errors.New("odd"), nil}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				acceptAll(&faulty{tt.answers}, slog.New(slog.DiscardHandler), func(*net.UnixConn) { n++ })
				if n != tt.want {
					t.Errorf("%d connections, want %d", n, tt.want)
				}
			})
		})
	}
}

func TestDescriptorsAreKeptForControl(t *testing.T) {
	var s spare
	s.fill()
	if len(s.files) != spareFiles || !s.release() || s.release() {
		t.Errorf("%d descriptors kept, want %d, which can be released once", len(s.files), spareFiles)
	}
}
