package webproxy

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxHeader = 64 << 10
	// idlePatience bounds how long a connection lasts on which nothing is asked.
	idlePatience = 5 * time.Minute
)

// maxStreams bounds the requests at once of a connection of HTTP/2.
const maxStreams = 32

// Serve answers the requests of one connection until it ends, of HTTP/2 if c is a *tls.Conn that
// has agreed on it. headPatience bounds how long a request's header takes.
func Serve(c net.Conn, h http.Handler, headPatience time.Duration) {
	one := &oneListener{conn: make(chan net.Conn, 1), ended: make(chan struct{})}
	one.conn <- c
	if _, strict := c.(*strictConn); strict {
		headPatience = idlePatience // it has whole heads, which it has waited for
	}
	var answering sync.WaitGroup // of HTTP/2, a handler may outlive its connection
	var switched atomic.Bool     // then the handler ends the connection
	end := sync.OnceFunc(func() { close(one.ended) })
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answering.Add(1)
			defer answering.Done()
			defer func() {
				if switched.Load() {
					end()
				}
			}()
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true, ErrorLog: noLog, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateClosed:
				end()
			case http.StateHijacked:
				switched.Store(true)
				if strict, is := c.(*strictConn); is {
					close(strict.switched)
				}
			}
		},
	}
	_ = server.Serve(one) // it ends with the connection
	answering.Wait()
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
