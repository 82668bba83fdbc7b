package attest

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Network says what the sandbox could reach, and in Earlier what it could reach before the network
// was changed.
type Network struct {
	Mode    string          `json:"mode"`            // none, named, host or bridge
	Allow   []string        `json:"allow,omitempty"` // of the mode named: the rules of hosts
	Secrets []Secret        `json:"secrets,omitempty"`
	Publish []uint16        `json:"publish,omitempty"` // ports inside that the host shows
	Earlier *EarlierNetwork `json:"earlier,omitempty"`
}

// EarlierNetwork is what was part of a network and is not now.
type EarlierNetwork struct {
	Modes   []string `json:"modes,omitempty"`
	Allow   []string `json:"allow,omitempty"`
	Secrets []Secret `json:"secrets,omitempty"`
	Publish []uint16 `json:"publish,omitempty"`
}

// Secret is a value that the sandbox used without knowing it.
type Secret struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`           // HOST:PORT
	Allow []string `json:"allow,omitempty"` // the requests that may be sent; none: all
}

func networkOf(c *record.Contributor) (*Network, error) {
	n := &Network{Mode: c.Net, Allow: c.AllowNet, Publish: c.Publish}
	was := EarlierNetwork{Modes: c.Earlier.Nets, Allow: c.Earlier.AllowNet, Publish: c.Earlier.Publish}
	var err error
	if n.Secrets, err = secretsOf(c.Secrets); err != nil {
		return nil, err
	}
	if was.Secrets, err = secretsOf(c.Earlier.Secrets); err != nil {
		return nil, err
	}
	if len(was.Modes)+len(was.Allow)+len(was.Secrets)+len(was.Publish) > 0 {
		n.Earlier = &was
	}
	return n, nil
}

func secretsOf(stored []hostlist.Secret) ([]Secret, error) {
	var list []Secret
	for _, from := range stored {
		name, hosts, err := from.Target()
		if err != nil {
			return nil, err
		}
		list = append(list, Secret{Name: name, Hosts: hosts, Allow: from.Allow})
	}
	return list, nil
}

// ever returns what was part of the network at any time.
func (n *Network) ever() EarlierNetwork {
	e := EarlierNetwork{Modes: []string{n.Mode}, Allow: n.Allow, Secrets: n.Secrets, Publish: n.Publish}
	if was := n.Earlier; was != nil {
		e.Modes, e.Allow = slices.Concat(e.Modes, was.Modes), slices.Concat(e.Allow, was.Allow)
		e.Secrets, e.Publish = slices.Concat(e.Secrets, was.Secrets), slices.Concat(e.Publish, was.Publish)
	}
	return e
}

// check refuses a network that no sandbox has: readers could not tell what it reaches. Errors:
// Invalid.
func (n *Network) check() error {
	e := n.ever()
	for _, mode := range e.Modes {
		if !slices.Contains([]string{record.NetNone, record.NetNamed, record.NetHost, record.NetBridge}, mode) {
			return errdefs.New(errdefs.Invalid, "its network %s is unknown", vpath.Quote(mode))
		}
	}
	hosts := e.Allow
	for _, s := range e.Secrets {
		if len(s.Hosts) == 0 {
			return errdefs.New(errdefs.Invalid, "its secret %s is for no host", vpath.Quote(s.Name))
		}
		hosts = slices.Concat(hosts, s.Hosts)
	}
	for _, host := range hosts {
		if list, err := hostlist.Parse([]string{host}); err != nil || !slices.Equal(list, []string{host}) {
			return errdefs.New(errdefs.Invalid, "its network has %s, which is no rule of a host", vpath.Quote(host))
		}
	}
	return nil
}

// Reach is what a sandbox and its contributors could reach at any time.
type Reach struct {
	Any     bool     `json:"any"`               // every host
	Unknown bool     `json:"unknown"`           // also what the author of an imported file could reach
	Hosts   []string `json:"hosts"`             // the rules of hosts, and the hosts of secrets, sorted
	Publish []uint16 `json:"publish,omitempty"` // ports inside to which programs of the host could connect
}

// Reach returns what the author of the changes could reach.
func (st *Statement) Reach() Reach {
	r := Reach{Hosts: []string{}}
	r.add(&st.Predicate.Network)
	for i := range st.Predicate.Contributors {
		if n := st.Predicate.Contributors[i].Network; n != nil {
			r.add(n)
		} else {
			r.Unknown = true
		}
	}
	slices.Sort(r.Hosts)
	slices.Sort(r.Publish)
	r.Hosts, r.Publish = slices.Compact(r.Hosts), slices.Compact(r.Publish)
	return r
}

func (r *Reach) add(n *Network) {
	e := n.ever()
	r.Any = r.Any || slices.Contains(e.Modes, record.NetHost) || slices.Contains(e.Modes, record.NetBridge)
	r.Hosts, r.Publish = append(r.Hosts, e.Allow...), append(r.Publish, e.Publish...)
	for _, s := range e.Secrets {
		r.Hosts = append(r.Hosts, s.Hosts...)
	}
}
