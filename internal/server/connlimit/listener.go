package connlimit

import (
	"errors"
	"net"
	"sync"
	"time"
)

// listener gives each connection a place.
type listener struct {
	net.Listener
	limiter *Limiter
	once    sync.Once
	closed  chan struct{}
}

// Listen wraps a listener. Its connections have an Addr as their remote address.
func (l *Limiter) Listen(inner net.Listener) net.Listener {
	return &listener{Listener: inner, limiter: l, closed: make(chan struct{})}
}

// The pauses after an error of accept(2), each twice the one before.
const (
	firstPause = 5 * time.Millisecond
	mostPause  = time.Second
)

// Accept returns the next connection. An error does not end it, unless the
// listener was closed: accept(2) fails for want of descriptors or memory, and
// for what went wrong with one connection.
func (l *listener) Accept() (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		c, err := l.Listener.Accept()
		if err == nil {
			return l.limiter.enter(c), nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		l.limiter.say(saidAccept, "err", err)
		select {
		case <-time.After(pause):
		case <-l.closed:
		}
	}
}

// Close ends Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
