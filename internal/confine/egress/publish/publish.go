// Package publish shows ports of a sandbox on the host: a Listener is the supervisor's end, at an
// address of the host's loopback, and a Server accepts its connections in the egress process and
// relays them to sockets in the sandbox.
//
// Every connection begins outside. A program inside that is connected to learns nothing of the host
// but what the other end sends.
package publish

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Port is a TCP port inside, and where the host has it.
type Port struct {
	At     netip.AddrPort `json:"at"`
	Inside uint16         `json:"inside"`
}

// Inbound is a connection to a published port, when it has ended, or could not be passed on.
type Inbound struct {
	Port
	Error string `json:"error,omitempty"` // why it was not passed on
	// Sent and Received are bytes, by and to the sandbox; -1 if that is not known.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
}

// Listener has a port of the host. It listens only while a process serves it, and has the port all
// the time.
type Listener struct {
	Port
	file *os.File
}

// backlog is how many connections wait to be accepted.
const backlog = 128

// A port that is taken is tried again, for so long and each so often: of a supervisor that was
// killed, an egress process that is ending may still have it.
const (
	takenPatience = time.Second
	takenPause    = 10 * time.Millisecond
)

// Listen takes a port of the host's loopback. Errors: Invalid for any other address; Denied;
// Unavailable, if another program has the port.
func Listen(ctx context.Context, p Port) (*Listener, error) {
	if !p.At.Addr().IsLoopback() || !p.At.Addr().Is4() {
		return nil, errdefs.New(errdefs.Invalid, "publish port %d at %s: not an address of 127.0.0.0/8", p.Inside, p.At)
	}
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp4", p.At.String())
	for end := time.Now().Add(takenPatience); errors.Is(err, unix.EADDRINUSE) && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(takenPause)
		l, err = config.Listen(ctx, "tcp4", p.At.String())
	}
	if err != nil {
		return nil, explain(p, err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "publish port %d: %w", p.Inside, err)
	}
	listener := &Listener{p, file}
	listener.Pause()
	return listener, nil
}

func explain(p Port, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return errdefs.New(errdefs.Unavailable, "publish port %d: %s is taken by another program; publish it at another port of this host, as HOSTPORT:%[1]d", p.Inside, p.At)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return errdefs.New(errdefs.Denied, "publish port %d: %s: only root may listen at this port; publish it at another port of this host, as HOSTPORT:%[1]d", p.Inside, p.At)
	}
	return errdefs.New(errdefs.Unavailable, "publish port %d: %w", p.Inside, err)
}

// File is the socket, for a process that serves it. It stays the Listener's.
func (l *Listener) File() *os.File { return l.file }

// Resume has it listen. Connections have SO_REUSEADDR from it: else the port would be taken for a
// minute after the sandbox has closed one (tcp(7), TIME_WAIT).
func (l *Listener) Resume() (err error) {
	l.control(func(fd int) {
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Listen(fd, backlog))
	})
	if err != nil {
		return errdefs.New(errdefs.Unavailable, "publish port %d: %s: %w", l.Inside, l.At, err)
	}
	return nil
}

// Pause has the kernel refuse connections, also those that wait to be accepted. With SO_REUSEADDR
// another program could take the port meanwhile.
func (l *Listener) Pause() {
	l.control(func(fd int) {
		_ = unix.Shutdown(fd, unix.SHUT_RD) // of one that does not listen it is an error
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
	})
}

// Close lets the port go.
func (l *Listener) Close() error { return l.file.Close() }

func (l *Listener) control(do func(fd int)) {
	if raw, err := l.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) }) // a closed file has none
	}
}
