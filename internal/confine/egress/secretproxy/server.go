package secretproxy

import (
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	maxHeader = 64 << 10
	// idlePatience bounds how long a connection lasts on which nothing is asked.
	idlePatience = 5 * time.Minute
)

// Serve answers the requests of one connection, one after the other, until it ends. headPatience
// bounds how long a request's header takes.
func Serve(c net.Conn, h http.Handler, headPatience time.Duration) {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true, ErrorLog: noLog,
	}
	server.SetKeepAlivesEnabled(true)
	one := &oneListener{conn: make(chan net.Conn, 1), ended: make(chan struct{})}
	one.conn <- &endingConn{Conn: c, ended: one.ended}
	_ = server.Serve(one) // it ends with the connection
}

// oneListener has one connection, and fails when that has ended.
type oneListener struct {
	conn  chan net.Conn
	ended chan struct{}
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	default:
	}
	<-l.ended
	return nil, net.ErrClosed
}

func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// endingConn tells of its end.
type endingConn struct {
	net.Conn

	once  sync.Once
	ended chan struct{}
}

// Close closes the connection.
func (c *endingConn) Close() error {
	defer c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}
