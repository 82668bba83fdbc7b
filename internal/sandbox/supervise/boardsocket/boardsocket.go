// Package boardsocket serves the board of a source to the programs of one sandbox: HTTP on a unix
// socket that is mounted inside.
//
// Its requests lock paths and end locks of that sandbox, list what its policy shows of the locks of
// others, and post and read messages. They can do nothing else. Who asks is known by the socket and
// never by what a request says. Everything that arrives is hostile: requests are bounded in size,
// in number and in time.
package boardsocket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/accept"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Bounds of what programs inside can make the supervisor do.
const (
	// maxConnections is how many connections there may be, and maxWaiting how many of their
	// requests may wait for a lock or a message.
	maxConnections = 16
	maxWaiting     = 8
	// requestPatience is how long a request may take to arrive, and idlePatience the next one.
	requestPatience = 10 * time.Second
	idlePatience    = 30 * time.Second
	maxHeaderBytes  = 4 << 10
	// maxBodyBytes is for MaxPaths paths, or a message of which each byte is escaped.
	maxBodyBytes = 64 << 10
	// requestBurst is how many requests are answered at once, and then one each requestPause.
	requestBurst = 200
	requestPause = 20 * time.Millisecond
	// changeBurst and changePause are likewise for requests that begin or end locks. Each of them
	// makes every other sandbox of the source look at all that it shows.
	changeBurst = 40
	changePause = 500 * time.Millisecond
)

// Options are what a socket needs. All are required.
type Options struct {
	// Admit refuses a peer that may not use the socket.
	Admit func(*net.UnixConn) error
	// Workspace is where the sandbox has the source.
	Workspace string
	Self      board.Holder
	Board     *board.Board
	// Locks lists the locks of which the sandbox may know.
	Locks  func() ([]board.Entry, error)
	Lock   func(context.Context, api.LockRequest) error
	Unlock func(context.Context, api.LockRequest) error
	Post   func(board.Draft) (board.Message, error)
	Log    *slog.Logger
}

// Server answers the requests of a sandbox.
type Server struct {
	o        Options
	http     http.Server
	end      context.CancelFunc
	waiting  chan struct{}
	requests *Bucket
	changes  *Bucket // of locks
	running  sync.WaitGroup
}

// Serve serves at l until Close.
func Serve(l *net.UnixListener, o Options) *Server {
	s := &Server{o: o, waiting: make(chan struct{}, maxWaiting), requests: NewBucket(requestBurst, requestPause), changes: NewBucket(changeBurst, changePause)}
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	s.http = http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: requestPatience,
		ReadTimeout:       requestPatience,
		IdleTimeout:       idlePatience,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // programs inside cause its lines
	}
	s.running.Go(func() {
		err := s.http.Serve(&listener{UnixListener: l, admit: o.Admit, log: o.Log, seats: make(chan struct{}, maxConnections)})
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			o.Log.Error("board: the socket inside ended", "err", err)
		}
	})
	return s
}

// Close ends all requests and waits for the end of the listener.
func (s *Server) Close() error {
	s.end()
	err := s.http.Close()
	s.running.Wait()
	return err
}

// listener admits so many connections as there are seats.
type listener struct {
	*net.UnixListener
	admit func(*net.UnixConn) error
	log   *slog.Logger
	seats chan struct{}
}

// Accept returns the next connection that is admitted.
func (l *listener) Accept() (net.Conn, error) {
	for {
		uc, err := accept.Next(l.AcceptUnix, func(err error) bool {
			l.log.Warn("board: a connection cannot be accepted; trying again", "err", err)
			return false
		}, nil)
		if err != nil {
			return nil, err
		}
		if err := l.admit(uc); err != nil {
			refuse(uc, http.StatusForbidden)
			continue
		}
		select {
		case l.seats <- struct{}{}:
			return &seated{UnixConn: uc, leave: sync.OnceFunc(func() { <-l.seats })}, nil
		default:
			refuse(uc, http.StatusServiceUnavailable)
		}
	}
}

// refuse ends a connection without reading from it.
func refuse(uc *net.UnixConn, status int) {
	defer uc.Close()
	_ = uc.SetWriteDeadline(time.Now().Add(time.Second)) // an empty buffer takes it at once
	_, _ = uc.Write([]byte("HTTP/1.1 " + statusLine(status) + "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
}

// seated is a connection that has a seat.
type seated struct {
	*net.UnixConn
	leave func()
}

// Close closes the connection.
func (c *seated) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}

// Listen makes the socket in a directory. Every user of the sandbox may use it.
func Listen(dir, name string) (*net.UnixListener, error) {
	handle, err := os.Open(dir)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "board: %w", err)
	}
	defer handle.Close()
	at := fmt.Sprintf("/proc/self/fd/%d/%s", handle.Fd(), name) // a socket's name holds 107 bytes at most
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: at})
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "board: socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(at, 0o666); err != nil {
		l.Close()
		return nil, errdefs.New(errdefs.Internal, "board: socket: %w", err)
	}
	return l, nil
}
