// Package address says which addresses names may lead to: those of other hosts on the internet. Its
// functions ask the kernel and change nothing.
package address

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// reserved are the ranges that the internet does not route, or that lead to where the host is
// (IANA IPv4 and IPv6 Special-Purpose Address Registries). Beside them the addresses of netip's
// own predicates are refused.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	allowlist.Synthetic, // carrier-grade NAT
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"), // relays of 6to4
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"), // the host of an Azure machine
	netip.MustParsePrefix("2001::/23"),        // Teredo and others
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("3fff::/20"),
}

// global is what IPv6 has given to networks (RFC 4291, 2.4).
var global = netip.MustParsePrefix("2000::/3")

// Forms of IPv6 addresses that stand for an IPv4 one, which begins at that byte.
var embedded = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64 (RFC 6052)
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4 (RFC 3056)
}

var errReserved = errors.New("the name leads to an address that is not a public one")

// CheckPublic refuses every address but those of hosts on the internet.
func CheckPublic(addr netip.Addr) error {
	addr = addr.Unmap()
	for _, form := range embedded {
		if form.prefix.Contains(addr) {
			b := addr.As16()
			addr = netip.AddrFrom4([4]byte(b[form.at : form.at+4]))
		}
	}
	switch {
	case !addr.IsGlobalUnicast(), addr.IsPrivate(), addr.Zone() != "":
		return errReserved
	case addr.Is6() && !global.Contains(addr):
		return errReserved
	case slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return errReserved
	}
	return nil
}

// Alternate returns addresses so that the families take turns, in the order that the resolver
// prefers within each (RFC 8305, 4).
func Alternate(addrs []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr // the first is that of the first address
	for _, a := range addrs {
		i := 0
		if a.Unmap().Is4() != addrs[0].Unmap().Is4() {
			i = 1
		}
		families[i] = append(families[i], a)
	}
	all := make([]netip.Addr, 0, len(addrs))
	for i := range addrs {
		for _, f := range families {
			if i < len(f) {
				all = append(all, f[i])
			}
		}
	}
	return all
}
