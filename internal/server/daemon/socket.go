package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// socket listens on a unix socket that only the server's user may use.
type socket struct {
	*net.UnixListener
	path string
}

// listenSocket creates the socket path, and replaces one that a killed server left. Errors:
// Precondition if a server listens there, or if the path is not a socket; those of the file system.
func listenSocket(ctx context.Context, path string) (made net.Listener, err error) {
	if err := checkFree(ctx, path); err != nil {
		return nil, err
	}
	// Set the mode before the socket has its name.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".socket-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	hidden := filepath.Join(dir, "s")
	var l *net.UnixListener
	err = shortly(hidden, func(name string) error {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{UnixListener: l, path: path}, nil
}

// shortly calls do with a name of the socket that is short enough for the kernel: 107 bytes
// (unix(7)).
func shortly(path string, do func(name string) error) error {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// answerTimeout is how long a server may take to accept a connection.
const answerTimeout = 2 * time.Second

// checkFree refuses a path that is in use: anything but a socket on which no server listens.
func checkFree(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return errdefs.New(errdefs.Precondition, "%s: exists and is not a socket", path)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err = shortly(path, func(name string) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", name)
		if err == nil {
			conn.Close()
		}
		return err
	})
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, os.ErrNotExist): // no server listens any more
		return nil
	case err != nil:
		return err
	}
	return errdefs.New(errdefs.Precondition, "%s: another server listens on it", path)
}

// Addr is the socket's path.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close ends listening and removes the socket.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return errors.Join(err, os.Remove(s.path))
}
