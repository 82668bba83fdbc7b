package connlimit

import (
	"net"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/accept"
)

// listener gives each connection a slot.
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

// Accept returns the next connection. Only a closed listener ends it.
func (l *listener) Accept() (net.Conn, error) {
	c, err := accept.Next(l.Listener.Accept, func(err error) bool {
		l.limiter.say(saidAccept, "err", err)
		return false
	}, l.closed)
	if err != nil {
		return nil, err
	}
	return l.limiter.enter(c), nil
}

// Close ends Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
