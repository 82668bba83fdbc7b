package present

import (
	"cmp"
	"maps"
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// HostUse is what was sent to and received from one host.
type HostUse struct {
	Host          string
	Connections   int
	Requests      int64 // of HTTP, on the connections where they are seen
	SentBytes     int64
	ReceivedBytes int64
	ByProxy       bool   // the caller's proxy has looked the name up
	Failed        int    // connections that could not be made
	Failure       string // why the last one of them could not, as the audit log has it
}

// HostRefusal is what was refused of one host for one reason, or the sockets of one kind.
type HostRefusal struct {
	Host     string
	Socket   string // its kind; then Host is empty
	Port     uint16 // 0: its address was asked for
	Protocol string // "": TCP, or a question for an address
	Reason   string
	Count    int
}

// PortUse is what connections to one published port carried.
type PortUse struct {
	audit.PublishedPort
	Connections   int        `json:"connections"`
	SentBytes     int64      `json:"sent_bytes"`
	ReceivedBytes int64      `json:"received_bytes"`
	Uncounted     int        `json:"uncounted"` // connections with bytes that are not known
	Failed        int        `json:"failed"`    // connections that were not passed on
	Failure       audit.Text `json:"failure,omitempty"`
}

// NetworkSum sums up connections and refusals. Its zero value has none.
type NetworkSum struct {
	hosts   map[string]*HostUse
	refused map[HostRefusal]int // by refusals without a count
	ports   map[audit.PublishedPort]*PortUse
}

// Add counts a record of the audit log.
func (n *NetworkSum) Add(r audit.Record) {
	switch e := r.Event.(type) {
	case audit.NetworkAllowed:
		n.use(e)
	case audit.NetworkDenied:
		if n.refused == nil {
			n.refused = map[HostRefusal]int{}
		}
		n.refused[HostRefusal{Host: string(e.Host), Socket: e.Socket, Port: e.Port, Protocol: e.Protocol, Reason: string(e.Reason)}] += max(e.Count, 1)
	case audit.PortConnected:
		n.connected(e)
	}
}

func (n *NetworkSum) connected(e audit.PortConnected) {
	if n.ports == nil {
		n.ports = map[audit.PublishedPort]*PortUse{}
	}
	at := audit.PublishedPort{Address: e.Address, HostPort: e.HostPort, Port: e.Port}
	p := n.ports[at]
	if p == nil {
		p = &PortUse{PublishedPort: at}
		n.ports[at] = p
	}
	if e.Error != "" {
		p.Failed++
		p.Failure = e.Error
		return
	}
	p.Connections++
	p.SentBytes += max(e.SentBytes, 0)
	p.ReceivedBytes += max(e.ReceivedBytes, 0)
	if e.SentBytes < 0 || e.ReceivedBytes < 0 {
		p.Uncounted++
	}
}

// Ports lists the published ports that had connections.
func (n *NetworkSum) Ports() []PortUse {
	all := make([]PortUse, 0, len(n.ports))
	for _, p := range n.ports {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b PortUse) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.HostPort, b.HostPort), cmp.Compare(a.Port, b.Port))
	})
	return all
}

func (n *NetworkSum) use(e audit.NetworkAllowed) {
	if n.hosts == nil {
		n.hosts = map[string]*HostUse{}
	}
	h := n.hosts[string(e.Host)]
	if h == nil {
		h = &HostUse{Host: string(e.Host)}
		n.hosts[h.Host] = h
	}
	if e.Error != "" {
		h.Failed++
		h.Failure = string(e.Error)
		return
	}
	h.Connections++
	h.ByProxy = h.ByProxy || e.Proxy != "" && e.Address == ""
	h.Requests += max(e.Requests, 0)
	h.SentBytes += max(e.SentBytes, 0)
	h.ReceivedBytes += max(e.ReceivedBytes, 0)
}

// Used lists the hosts, those first to which most was sent.
func (n *NetworkSum) Used() []HostUse {
	var all []HostUse
	for _, h := range n.hosts {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b HostUse) int {
		return cmp.Or(cmp.Compare(b.SentBytes, a.SentBytes), cmp.Compare(a.Host, b.Host))
	})
	return all
}

// Refused lists the refusals, the most frequent first.
func (n *NetworkSum) Refused() []HostRefusal {
	all := slices.Collect(maps.Keys(n.refused))
	for i := range all {
		all[i].Count = n.refused[all[i]]
	}
	slices.SortFunc(all, func(a, b HostRefusal) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Socket, b.Socket), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
