// Package published says which ports of a sandbox the host shows, and at which address: one of the
// host's loopback that no other sandbox has, so that a browser keeps the cookies of sandboxes, and
// of other programs on localhost, apart.
package published

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

const (
	// maxPorts bounds the published ports of a sandbox.
	maxPorts = 64
	// firstInside is the first port at which a program inside can listen without a capability.
	firstInside = 1024
)

// Port is a TCP port inside, and the port of the host at which it is shown.
type Port struct {
	Host   uint16 `json:"host_port"`
	Inside uint16 `json:"port"`
}

// Ports are the published ports of a sandbox, as its record has them.
type Ports struct {
	Publish []Port `json:"publish,omitempty"`
	// PublishAddress is the host's address of the ports. It stays when there are no ports any more.
	PublishAddress string `json:"publish_address,omitempty"`
}

// Parse reads ports in the form [HOSTPORT:]PORT. Errors: Invalid.
func Parse(texts []string) ([]Port, error) {
	var ports []Port
	for _, text := range texts {
		p, err := parse(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(ports, func(other Port) bool { return other != p && other.Host == p.Host }) {
			return nil, errdefs.New(errdefs.Invalid, "%s: port %d of this host is published already", vpath.Quote(text), p.Host)
		}
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	if len(ports) > maxPorts {
		return nil, errdefs.New(errdefs.Invalid, "%d ports, more than the %d that one sandbox may publish", len(ports), maxPorts)
	}
	return ports, nil
}

func parse(text string) (p Port, err error) {
	host, inside, both := strings.Cut(text, ":")
	if !both {
		inside = host
	}
	if p.Host, err = parsePort(host); err == nil {
		p.Inside, err = parsePort(inside)
	}
	switch {
	case err != nil:
		return p, errdefs.New(errdefs.Invalid, "%s: want PORT or HOSTPORT:PORT, such as 3000 or 8080:3000, with ports from 1 to 65535", vpath.Quote(text))
	case p.Inside < firstInside:
		return p, errdefs.New(errdefs.Invalid, "%s: a program inside cannot listen at ports below %d; let it listen at another port, and publish that as HOSTPORT:PORT", vpath.Quote(text), firstInside)
	}
	return p, nil
}

// parsePort reads a number without sign, zeros before it, and spaces.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, errdefs.New(errdefs.Invalid, "malformed port")
	}
	return uint16(n), nil
}

// CheckPorts refuses ports without an address, and those that lead to an allowed host in place of a
// program inside. Errors: Precondition.
func (p *Ports) CheckPorts(allowNet []string) error {
	if _, err := Parse(p.Texts()); err != nil {
		return errdefs.New(errdefs.Precondition, "publish %w", err)
	}
	if a := p.address(); (p.PublishAddress != "" || len(p.Publish) > 0) && (!a.Is4() || !a.IsLoopback()) {
		return errdefs.New(errdefs.Precondition, "publish_address %q: not an address of 127.0.0.0/8", p.PublishAddress)
	}
	return p.CheckHosts(allowNet)
}

// CheckHosts refuses a port at which a program inside cannot listen, because it is one of this
// host's localhost there. Errors: Precondition.
func (p *Ports) CheckHosts(allowNet []string) error {
	rules, err := allowlist.Parse(allowNet)
	if err != nil {
		return nil //nolint:nilerr // hosts are checked elsewhere
	}
	for _, port := range p.Publish {
		if _, is := allowlist.Find(rules, allowlist.Localhost, port.Inside); is {
			return errdefs.New(errdefs.Precondition, "port %[1]d: published, so it cannot be that of this host's localhost too (localhost:%[1]d); choose one of the two", port.Inside)
		}
	}
	return nil
}

// address is PublishAddress, or invalid.
func (p *Ports) address() netip.Addr {
	a, _ := netip.ParseAddr(p.PublishAddress) // CheckPorts refuses another one
	return a
}

// Texts are the ports as Parse reads them.
func (p *Ports) Texts() []string {
	var texts []string
	for _, port := range p.Publish {
		texts = append(texts, fmt.Sprintf("%d:%d", port.Host, port.Inside))
	}
	return texts
}

// CheckRights refuses ports of the host at which only root may listen. Errors: Denied.
func CheckRights(ports []Port) error {
	if os.Geteuid() == 0 {
		return nil
	}
	first := firstInside // the kernel's default (ip_unprivileged_port_start)
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			first = n
		}
	}
	for _, p := range ports {
		if int(p.Host) < first {
			return errdefs.New(errdefs.Denied, "%d:%d: only root may listen at ports of this host below %d; choose another one, such as %d:%[2]d", p.Host, p.Inside, first, 8000+p.Host)
		}
	}
	return nil
}

// Places are the ports with their addresses.
func (p *Ports) Places() []publish.Port {
	var places []publish.Port
	for _, port := range p.Publish {
		places = append(places, publish.Port{At: netip.AddrPortFrom(p.address(), port.Host), Inside: port.Inside})
	}
	return places
}

// Text says where a port is, for people.
func Text(p publish.Port) string { return fmt.Sprintf("%s is port %d inside", p.At, p.Inside) }

// FreeAddress returns an address of the host's loopback that is not taken. It is a random one, so
// that a sandbox and its predecessor, or those of two users, are unlikely to share one. Errors:
// Exhausted.
func FreeAddress(taken map[string]bool) (string, error) {
	const first, last = 2, 254
	for _, i := range rand.Perm(last - first + 1) {
		addr := fmt.Sprintf("127.0.0.%d", first+i)
		if !taken[addr] && !slices.Contains(resolvers, addr) {
			return addr, nil
		}
	}
	return "", errdefs.New(errdefs.Exhausted, "no address of 127.0.0.0/24 is left: each sandbox with published ports has one; remove sandboxes that are not used")
}

// resolvers are the addresses of systemd-resolved(8).
var resolvers = []string{"127.0.0.53", "127.0.0.54"}
