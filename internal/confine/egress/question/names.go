package question

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

// Names keeps for a moment which addresses the host's resolver gave for names. Whether an address
// may be used is checked for each connection anyway. Its zero value is empty.
type Names struct {
	mu    sync.Mutex
	known map[string]pin
}

type pin struct {
	addrs []netip.Addr
	until time.Time
}

// Lookup finds the addresses of a name.
type Lookup func(ctx context.Context, name string) ([]netip.Addr, error)

// Pinned returns ask with its answers kept. Failures are not.
func (t *Names) Pinned(ask Lookup) Lookup {
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

func (t *Names) find(name string) []netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, known := t.known[name]; known && time.Now().Before(p.until) {
		return p.addrs
	}
	return nil
}

func (t *Names) keep(name string, addrs []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxPins {
		t.known = map[string]pin{}
	}
	t.known[name] = pin{addrs, time.Now().Add(pinTime)}
}

// Forget has the name looked up again: its addresses did not serve.
func (t *Names) Forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, name)
}
