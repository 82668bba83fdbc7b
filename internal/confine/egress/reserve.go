package egress

import (
	"net/netip"
	"os"
	"slices"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// firstFreePort is the first one at which programs inside can listen.
const firstFreePort = 1024

// reasonTaken is why a port of a host cannot be reached.
const reasonTaken = "a program inside listens at this port"

// reservations are the ports of hosts that a wildcard names. Their listeners are made on demand,
// and a program inside that listens at the port on all addresses would be in their way.
type reservations map[uint16]*os.File

// reservedPorts are the ports that rules need.
func reservedPorts(rules []allowlist.Rule) []uint16 {
	var ports []uint16
	for _, r := range rules {
		if r.Wildcard && r.Port >= firstFreePort && !slices.Contains(ports, r.Port) {
			ports = append(ports, r.Port)
		}
	}
	return ports
}

// reserveLocked reserves the ports that the rules need, and tells of those that a program inside
// has. Errors: Exhausted.
func (e *Egress) reserveLocked() error {
	for _, r := range e.rules {
		if !r.Wildcard || r.Port < firstFreePort || e.reserved[r.Port] != nil {
			continue
		}
		f, err := e.namespace.ReserveTCP(netip.AddrPortFrom(Resolver, r.Port))
		if errdefs.Is(err, errdefs.Unavailable) {
			e.options.Denied(Denied{Host: "*." + string(r.Host), Port: r.Port, Reason: reasonTaken, Count: 1})
			continue
		}
		if err != nil {
			return err
		}
		if e.reserved == nil {
			e.reserved = reservations{}
		}
		e.reserved[r.Port] = f
		e.taken++
	}
	return nil
}

// releaseLocked gives up the ports but these.
func (e *Egress) releaseLocked(ports []uint16) {
	for port, f := range e.reserved {
		if !slices.Contains(ports, port) {
			f.Close()
			delete(e.reserved, port)
			e.taken--
		}
	}
}
