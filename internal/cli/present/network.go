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
	SentBytes     int64
	ReceivedBytes int64
	Failed        int // connections that could not be made
}

// HostRefusal is what was refused of one host for one reason.
type HostRefusal struct {
	Host   string
	Port   uint16 // 0: its address was asked for
	Reason string
	Count  int
}

// network sums up connections and refusals.
type network struct {
	hosts   map[string]*HostUse
	refused map[HostRefusal]int // by refusals without a count
}

// add counts a record of the audit log.
func (n *network) add(r audit.Record) {
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

func (n *network) use(e audit.NetworkAllowed) {
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
		return
	}
	h.Connections++
	h.SentBytes += max(e.SentBytes, 0)
	h.ReceivedBytes += max(e.ReceivedBytes, 0)
}

// used lists the hosts, those first to which most was sent.
func (n *network) used() []HostUse {
	var all []HostUse
	for _, h := range n.hosts {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b HostUse) int {
		return cmp.Or(cmp.Compare(b.SentBytes, a.SentBytes), cmp.Compare(a.Host, b.Host))
	})
	return all
}

// list lists the refusals, the most frequent first.
func (n *network) list() []HostRefusal {
	all := slices.Collect(maps.Keys(n.refused))
	for i := range all {
		all[i].Count = n.refused[all[i]]
	}
	slices.SortFunc(all, func(a, b HostRefusal) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
