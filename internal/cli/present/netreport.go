package present

import (
	"cmp"
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// NetReport is what an audit log tells of the network: what left the sandbox, and what was
// refused. Its zero value has nothing. Texts are as the log has them, not escaped.
type NetReport struct {
	hosts  map[hostKey]*HostTraffic
	others NetworkSum // refusals and connections to published ports

	omittedConnections, omittedRefusals int64 // that the log only counts
}

// HostTraffic is what one rule let through to one port of a host.
type HostTraffic struct {
	Host          audit.Text `json:"host"`
	Port          uint16     `json:"port"`
	Rule          audit.Text `json:"rule"`
	Connections   int        `json:"connections"`
	Requests      int64      `json:"requests"` // of HTTP, on the connections where they are seen
	SentBytes     int64      `json:"sent_bytes"`
	ReceivedBytes int64      `json:"received_bytes"`
	Uncounted     int        `json:"uncounted"` // connections with bytes that are not known
	Failed        int        `json:"failed"`    // connections that could not be made
}

// RefusedTraffic is what was refused of a host for one reason, or the sockets of one kind.
type RefusedTraffic struct {
	Host     audit.Text `json:"host"`               // empty for a socket
	Socket   string     `json:"socket,omitempty"`   // its kind
	Port     uint16     `json:"port,omitempty"`     // absent: its address was asked for
	Protocol string     `json:"protocol,omitempty"` // absent: TCP, or a question for an address
	Reason   audit.Text `json:"reason"`
	Count    int        `json:"count"`
}

type hostKey struct {
	host, rule audit.Text
	port       uint16
}

// Add counts a record of the log.
func (n *NetReport) Add(r audit.Record) {
	switch e := r.Event.(type) {
	case audit.NetworkAllowed:
		n.allowed(e)
	case audit.NetworkDenied, audit.PortConnected:
		n.others.Add(r)
	case audit.EventsOmitted:
		n.omittedRefusals += e.NetworkRefusals()
		for _, c := range e.Events {
			if c.Event == audit.KindNetworkAllowed || c.Event == audit.KindPortConnected {
				n.omittedConnections += c.Records
			}
		}
	}
}

func (n *NetReport) allowed(e audit.NetworkAllowed) {
	if n.hosts == nil {
		n.hosts = map[hostKey]*HostTraffic{}
	}
	k := hostKey{e.Host, e.Rule, e.Port}
	h := n.hosts[k]
	if h == nil {
		h = &HostTraffic{Host: e.Host, Port: e.Port, Rule: e.Rule}
		n.hosts[k] = h
	}
	if e.Error != "" {
		h.Failed++
		return
	}
	h.Connections++
	h.Requests += max(e.Requests, 0)
	h.SentBytes += max(e.SentBytes, 0)
	h.ReceivedBytes += max(e.ReceivedBytes, 0)
	if e.SentBytes < 0 || e.ReceivedBytes < 0 {
		h.Uncounted++
	}
}

// Hosts lists what was let through, that first to which most was sent.
func (n *NetReport) Hosts() []HostTraffic {
	all := make([]HostTraffic, 0, len(n.hosts))
	for _, h := range n.hosts {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b HostTraffic) int {
		return cmp.Or(cmp.Compare(b.SentBytes, a.SentBytes), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

// Refused lists what was refused, the most frequent first.
func (n *NetReport) Refused() []RefusedTraffic {
	list := n.others.Refused()
	all := make([]RefusedTraffic, 0, len(list))
	for _, r := range list {
		all = append(all, RefusedTraffic{audit.Text(r.Host), r.Socket, r.Port, r.Protocol, audit.Text(r.Reason), r.Count})
	}
	return all
}

// Ports lists the published ports that had connections.
func (n *NetReport) Ports() []PortUse { return n.others.Ports() }

// Omitted returns how many connections and refusals the log only counts.
func (n *NetReport) Omitted() (connections, refusals int64) {
	return n.omittedConnections, n.omittedRefusals
}
