package daemon

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
)

// idle ends a server without connections. A client keeps its connection between calls.
type idle struct {
	after time.Duration
	busy  func() bool // whether there is work without a client
	end   func()

	mu          sync.Mutex
	connections int
	timer       *time.Timer // runs while there are no connections
}

// watchIdle calls end after the time after without a connection and while busy returns false.
func watchIdle(after time.Duration, busy func() bool, end func()) *idle {
	i := &idle{after: after, busy: busy, end: end}
	i.timer = time.AfterFunc(after, i.look)
	return i
}

// look ends the server, or restarts the timer.
func (i *idle) look() {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.connections > 0: // a client connected meanwhile
	case i.busy():
		i.timer.Reset(i.after)
	default:
		i.end()
	}
}

func (i *idle) opened() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.connections++
	i.timer.Stop()
}

func (i *idle) closed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.connections--; i.connections == 0 {
		i.timer.Reset(i.after)
	}
}

// stop ends the watch.
func (i *idle) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.connections++ // never ends again
	i.timer.Stop()
}

// HandleConn counts the connections of gRPC.
func (i *idle) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		i.opened()
	case *stats.ConnEnd:
		i.closed()
	}
}

// TagConn, TagRPC and HandleRPC complete stats.Handler.
func (i *idle) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC does nothing.
func (i *idle) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (i *idle) HandleRPC(context.Context, stats.RPCStats) {}

// httpState counts the connections of REST.
func (i *idle) httpState(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		i.opened()
	case http.StateClosed, http.StateHijacked:
		i.closed()
	case http.StateActive, http.StateIdle:
	}
}
