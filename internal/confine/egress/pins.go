package egress

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// pinTime is how long the addresses of a name are used without asking again. A program that
	// opens many connections to a host opens them at once.
	pinTime = 2 * time.Second
	// maxPins bounds the names of which the addresses are kept.
	maxPins = 256
)

// pinTable keeps for a moment what names were looked up. Whether an address may be used is checked
// for each connection anyway. Its zero value is empty.
type pinTable struct {
	mu    sync.Mutex
	names map[string]pin
}

type pin struct {
	addrs []netip.Addr
	until time.Time
}

type lookup func(ctx context.Context, name string) ([]netip.Addr, error)

// pinned returns ask with its answers kept. Failures are not.
func (t *pinTable) pinned(ask lookup) lookup {
	return func(ctx context.Context, name string) ([]netip.Addr, error) {
		if addrs := t.find(name); addrs != nil {
			return addrs, nil
		}
		addrs, err := ask(ctx, name)
		if err == nil && len(addrs) > 0 {
			t.keep(name, addrs)
		}
		return addrs, err
	}
}

func (t *pinTable) find(name string) []netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, known := t.names[name]; known && time.Now().Before(p.until) {
		return p.addrs
	}
	return nil
}

func (t *pinTable) keep(name string, addrs []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil || len(t.names) >= maxPins {
		t.names = map[string]pin{}
	}
	t.names[name] = pin{addrs, time.Now().Add(pinTime)}
}

// forget has the name looked up again: its addresses did not serve.
func (t *pinTable) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.names, name)
}
