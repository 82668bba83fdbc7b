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

// HostRefusal is what was refused of one host for one reason.
type HostRefusal struct {
	Host   string
	Port   uint16 // 0: its address was asked for
	Reason string
	Count  int
}

// NetworkSum sums up connections and refusals. Its zero value has none.
type NetworkSum struct {
	hosts   map[string]*HostUse
	refused map[HostRefusal]int // by refusals without a count
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
		n.refused[HostRefusal{Host: string(e.Host), Port: e.Port, Reason: string(e.Reason)}] += max(e.Count, 1)
	}
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
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
