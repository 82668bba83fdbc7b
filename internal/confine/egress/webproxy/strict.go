package webproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/sniff"
)

// Strict returns a connection for Serve of which it reads HTTP/1 requests that package sniff and
// check, if set, have let through, and no others. refused is told of the error of the first other
// one, which ends the connection. patience bounds how long the head of a request takes. Strict
// takes c over.
func Strict(c net.Conn, patience time.Duration, check func(*sniff.Request) error, refused func(error)) net.Conn {
	checked, read := net.Pipe()
	s := &strictConn{Conn: c, read: read, fed: make(chan struct{}), switched: make(chan struct{}), closed: make(chan struct{})}
	go func() {
		defer close(s.fed)
		defer checked.Close()
		first, err := s.feed(checked, patience, check)
		if err == nil || isEnd(err) {
			return
		}
		if first {
			answerRefusal(c, err)
		}
		refused(err)
	}()
	return s
}

// isEnd reports whether a connection has ended without a reason to tell: one side has closed it.
func isEnd(err error) bool {
	failure := &net.OpError{}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &failure) && !failure.Timeout()
}

// feed passes checked requests on, and all that follows one that has changed the protocol. first
// says whether there was none before the error.
func (s *strictConn) feed(to io.Writer, patience time.Duration, check func(*sniff.Request) error) (first bool, err error) {
	from := s.Conn
	r := bufio.NewReader(from)
	for first = true; ; first = false {
		if first {
			if err := from.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return first, err
			}
		}
		if _, err := r.Peek(1); err != nil {
			return first, io.EOF // it asks nothing
		}
		if err := from.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return first, err
		}
		q, err := sniff.ReadRequest(r)
		if err == nil && check != nil {
			err = check(q)
		}
		if err == nil {
			err = from.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return first, err
		}
		if _, err := to.Write(q.Raw); err != nil {
			return first, err
		}
		if q.WebSocket {
			return false, s.pass(to, r)
		}
		if _, err := q.CopyBody(to, r); err != nil {
			return false, err
		}
	}
}

// pass passes on what follows the request for a WebSocket once the host has agreed. Else nothing
// follows: the connection is closed after the answer.
func (s *strictConn) pass(to io.Writer, r *bufio.Reader) error {
	if _, err := r.Peek(1); err != nil {
		return io.EOF // the program does not wait for the answer
	}
	select {
	case <-s.switched:
	case <-s.closed:
		return io.EOF
	}
	if _, err := io.Copy(to, r); err != nil {
		return err
	}
	return io.EOF
}

// answerRefusal tells the program why its first request is refused, and lets it read that, which a
// reset would take from it.
func answerRefusal(c net.Conn, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errSlow
	}
	if c.SetDeadline(time.Now().Add(drainPatience)) != nil {
		return
	}
	text := "agentfense: " + err.Error() + "\n"
	_, _ = fmt.Fprintf(c, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text) // the refusal is what counts
	if closeWrite(c) == nil {
		_, _ = io.CopyN(io.Discard, c, maxDrain)
	}
}

var errSlow = errors.New("the request takes too long")

const (
	drainPatience = time.Second
	maxDrain      = 1 << 20
)

// closeWrite tells the program that nothing more comes.
func closeWrite(c net.Conn) error {
	half, can := c.(interface{ CloseWrite() error })
	if !can {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// strictConn reads what was checked, and writes to the connection.
type strictConn struct {
	net.Conn

	read     net.Conn
	fed      chan struct{} // closed when nothing more is read
	switched chan struct{} // closed when the protocol has changed
	closed   chan struct{}
	once     sync.Once
}

func (s *strictConn) Read(p []byte) (int, error) { return s.read.Read(p) }

// SetReadDeadline is for the reader of what was checked.
func (s *strictConn) SetReadDeadline(t time.Time) error { return s.read.SetReadDeadline(t) }

// SetDeadline is for reading and writing.
func (s *strictConn) SetDeadline(t time.Time) error {
	return errors.Join(s.read.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// CloseWrite is for net/http, which lets a program read the last answer.
func (s *strictConn) CloseWrite() error { return closeWrite(s.Conn) }

// Close closes the connection, and returns when it is no longer used.
func (s *strictConn) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.read.Close()
	err := s.Conn.Close()
	<-s.fed
	return err
}
