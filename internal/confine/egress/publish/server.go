package publish

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const (
	// maxConns bounds the connections at once to all ports of a sandbox. Others wait.
	maxConns = 256
	// connectPatience bounds how long a program inside takes to accept a connection.
	connectPatience = 30 * time.Second
	// acceptPause is how long a listener waits when there are no descriptors left.
	acceptPause = 50 * time.Millisecond
)

// Reasons of connections that are not passed on.
const (
	ReasonNothing   = "nothing listens at this port inside"
	ReasonNoSockets = "no socket inside"
)

// Server relays connections. Its fields are set before it serves.
type Server struct {
	// Sockets returns sockets of the sandbox that are not connected, of IPv4 and, if there is that,
	// of IPv6. They are the caller's.
	Sockets func(ctx context.Context) []*os.File
	// Tell is told of each connection, twice.
	Tell func(Event)
	// Busy is called for each connection, and what it returns when that has ended.
	Busy func() (done func())

	once   sync.Once
	tokens chan struct{}
	last   atomic.Uint64 // id of a connection
}

// Serve accepts connections until ctx ends or the listener is closed. It takes the listener over.
// working counts what goes on.
func (s *Server) Serve(ctx context.Context, working *sync.WaitGroup, p Port, l net.Listener) {
	s.once.Do(func() { s.tokens = make(chan struct{}, maxConns) })
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				time.Sleep(acceptPause)
				continue
			}
			select {
			case s.tokens <- struct{}{}:
			case <-ctx.Done():
				c.Close()
				return
			}
			working.Go(func() {
				defer s.Busy()()
				defer func() { <-s.tokens }()
				s.relay(ctx, p, c.(*net.TCPConn))
			})
		}
	}()
}

// relay passes a connection on to the port inside.
func (s *Server) relay(ctx context.Context, p Port, outer *net.TCPConn) {
	defer outer.Close()
	defer context.AfterFunc(ctx, func() { outer.Close() })()
	id := s.last.Add(1)
	s.Tell(Event{ID: id, Inbound: Inbound{Port: p}})
	inner, err := s.connect(ctx, p.Inside)
	if err != nil {
		_ = outer.SetLinger(0) // a reset tells of a failure
		s.Tell(Event{id, true, Inbound{Port: p, Error: err.Error()}})
		return
	}
	defer inner.Close()
	defer context.AfterFunc(ctx, func() { inner.Close() })()
	received := make(chan int64, 1)
	go func() { received <- Pass(inner, outer) }()
	sent := Pass(outer, inner)
	s.Tell(Event{id, true, Inbound{Port: p, Sent: sent, Received: <-received}})
}

// HalfConn is a connection of which one direction can end.
type HalfConn interface {
	net.Conn
	CloseWrite() error
}

// Pass copies from one side to the other, by splice(2) where the kernel can, and passes on how that
// ends. It returns the bytes.
func Pass(to, from HalfConn) int64 {
	n, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		to.Close()
		from.Close()
	}
	return n
}

// connect connects to a port of the sandbox's localhost.
func (s *Server) connect(ctx context.Context, port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	files := s.Sockets(ctx)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	err := errors.New(ReasonNoSockets)
	for i, to := range []unix.Sockaddr{
		&unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}},
		&unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}},
	} {
		if i == len(files) {
			break
		}
		if err = connect(ctx, files[i], to); err == nil {
			c, err := net.FileConn(files[i])
			if err != nil {
				return nil, err
			}
			return c.(*net.TCPConn), nil
		}
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		err = errors.New(ReasonNothing)
	}
	return nil, err
}

// connect connects a socket that does not block.
func connect(ctx context.Context, f *os.File, to unix.Sockaddr) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Now()) }) // it may be closed
	defer stop()
	var connectErr error
	begun := false
	err = raw.Write(func(fd uintptr) bool {
		if !begun {
			begun = true
			connectErr = unix.Connect(int(fd), to)
			return !errors.Is(connectErr, unix.EINPROGRESS)
		}
		var code int
		if code, connectErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); connectErr == nil && code != 0 {
			connectErr = unix.Errno(code)
		}
		_, peerErr := unix.Getpeername(int(fd))
		return connectErr != nil || peerErr == nil // else the poller woke us for nothing
	})
	if err != nil {
		return errdefs.New(errdefs.Deadline, "the program inside does not accept the connection: %w", err)
	}
	return connectErr
}
