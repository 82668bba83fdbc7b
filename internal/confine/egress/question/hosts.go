package question

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

const (
	// askPatience bounds the wait for a host's address.
	askPatience = 5 * time.Second
	// maxHosts bounds the table. The supervisor gives addresses to fewer.
	maxHosts = 4096
)

// ReasonTooMany is why there is no address for one more name.
const ReasonTooMany = "too many host names"

const reasonNoAnswer = "the host name got no address"

// Hosts has the addresses that stand for hosts inside. Its zero value is empty.
type Hosts struct {
	Ask func(h allowlist.Host) // for an address, which Set tells

	mu    sync.Mutex
	known map[allowlist.Host]*place
	names map[netip.Addr]allowlist.Host // by address
}

// place is where a host is inside.
type place struct {
	set     chan struct{} // closed when the rest is known
	addr    netip.Addr
	refused string // why there is no address
}

// Find returns the address of a host, for which it asks if there is none yet, or why it has none.
func (t *Hosts) Find(ctx context.Context, h allowlist.Host) (addr netip.Addr, refused string) {
	p, isNew := t.at(h)
	if p == nil {
		return netip.Addr{}, ReasonTooMany
	}
	if isNew {
		t.Ask(h)
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	select {
	case <-p.set:
		return p.addr, p.refused
	case <-ctx.Done():
		return netip.Addr{}, reasonNoAnswer
	}
}

// at returns the place of a host, nil if the table is full.
func (t *Hosts) at(h allowlist.Host) (p *place, isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, known := t.known[h]; known {
		return p, false
	}
	if len(t.known) >= maxHosts {
		return nil, false
	}
	if t.known == nil {
		t.known = map[allowlist.Host]*place{}
	}
	p = &place{set: make(chan struct{})}
	t.known[h] = p
	return p, true
}

// Set tells where a host is, once.
func (t *Hosts) Set(h allowlist.Host, addr netip.Addr, refused string) {
	p, _ := t.at(h)
	if p == nil {
		return
	}
	select {
	case <-p.set:
	default:
		p.addr, p.refused = addr, refused
		close(p.set)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.names == nil {
			t.names = map[netip.Addr]allowlist.Host{}
		}
		if refused == "" {
			t.names[addr] = h
		}
	}
}

// Name returns the host that an address stands for.
func (t *Hosts) Name(addr netip.Addr) (h allowlist.Host, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, known = t.names[addr]
	return h, known
}

// ForgetRefused has Find ask again for hosts that got no address: other rules may give them one.
func (t *Hosts) ForgetRefused() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, p := range t.known {
		select {
		case <-p.set:
			if p.refused != "" {
				delete(t.known, h)
			}
		default:
		}
	}
}
