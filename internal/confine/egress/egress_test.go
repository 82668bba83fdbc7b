package egress

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/netns"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// newAssigner is an Egress without a process.
func newAssigner(t *testing.T, rules ...string) *Egress {
	t.Helper()
	testenv.Root(t)
	all, err := allowlist.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	e := &Egress{rules: all, patience: obeyPatience, hosts: map[allowlist.Host]*host{}}
	if e.namespace, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.closeFiles(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestEachNameHasAnAddressOfItsOwn(t *testing.T) {
	e := newAssigner(t, "*.example.com", "*.example.com:80", "example.com", "10.1.2.3:22,raw")
	names := map[netip.Addr]allowlist.Host{}
	for i := range 50 {
		h, err := e.assign(allowlist.Host(fmt.Sprintf("h%d.example.com", i)))
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := names[h.addr]; taken || !allowlist.Synthetic.Contains(h.addr) || h.addr == Resolver || len(h.listeners) != 2 {
			t.Errorf("%s has %s with %d listeners; so has %q", h.name, h.addr, len(h.listeners), other)
		}
		names[h.addr] = h.name
	}
	for addr, name := range names {
		if h, err := e.assign(name); err != nil || h.addr != addr {
			t.Errorf("%s has another address now: %v, %v", name, h, err)
		}
	}
	if h, err := e.assign("10.1.2.3"); err != nil || h.addr != netip.MustParseAddr("10.1.2.3") {
		t.Errorf("an address that is named: %v, %v", h, err)
	}
}

func TestOnlyAllowedNamesGetAnAddress(t *testing.T) {
	e := newAssigner(t, "example.com", "*.example.org")
	for _, name := range []allowlist.Host{"www.example.com", "example.org", "evil.net", "93.184.216.34", "localhost"} {
		if h, err := e.assign(name); !errdefs.Is(err, errdefs.Denied) {
			t.Errorf("%s: got %v, %v; want Denied", name, h, err)
		}
	}
}

// Each name below a wildcard may tell something to whoever answers for its domain.
func TestNamesBelowAWildcardAreFew(t *testing.T) {
	e := newAssigner(t, "*.example.com", "*.example.org")
	name := func(i int) allowlist.Host { return allowlist.Host(fmt.Sprintf("h%d.example.com", i)) }
	for i := range maxNames {
		if _, err := e.assign(name(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.assign(name(maxNames)); !errdefs.Is(err, errdefs.Denied) {
		t.Errorf("one more: got %v, want Denied", err)
	}
	for _, known := range []allowlist.Host{name(0), "a.example.org"} {
		if _, err := e.assign(known); err != nil {
			t.Errorf("%s: %v", known, err)
		}
	}
}
