// Package contributor describes sandboxes whose changes came into another sandbox: what they could
// see and reach, now and at earlier times. It is pure data, which the record of a sandbox keeps.
package contributor

import (
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Contributor is where changes of a sandbox are from that it did not make itself: another sandbox,
// by a merge, or an imported file. A sandbox is described as it was at the last merge.
type Contributor struct {
	ID       string `json:"id,omitempty"`
	Name     string `json:"name,omitempty"`
	Imported string `json:"imported,omitempty"` // SHA-256 of a file; nothing else is known then

	Rules        []policy.Rule     `json:"rules,omitempty"`
	EarlierRules [][]policy.Rule   `json:"earlier_rules,omitempty"`
	Mounts       []mountspec.Mount `json:"mounts,omitempty"`
	Net          string            `json:"net,omitempty"`
	AllowNet     []string          `json:"allow_net,omitempty"`
	Secrets      []hostlist.Secret `json:"secrets,omitempty"`
	Publish      []uint16          `json:"publish,omitempty"` // ports inside
	Earlier      Earlier           `json:"earlier,omitzero"`
}

// Add adds what another description of the same sandbox has, which may be older or newer.
func (c *Contributor) Add(other *Contributor) {
	c.EarlierRules = union(c.EarlierRules, append([][]policy.Rule{other.Rules}, other.EarlierRules...), isSameRules)
	c.EarlierRules = minus(c.EarlierRules, [][]policy.Rule{c.Rules}, isSameRules)
	c.Earlier = c.EverHad().With(other.EverHad()).Without(c.Has())
}

// Has returns what c has, in the form of what it had.
func (c *Contributor) Has() Earlier {
	e := Earlier{Nets: []string{c.Net}, AllowNet: c.AllowNet, Publish: c.Publish}
	for _, s := range c.Secrets {
		e.Secrets = append(e.Secrets, hostlist.Secret{Text: s.Text, Allow: s.Allow})
	}
	for _, m := range c.Mounts {
		m.Dev, m.Ino, m.Born = 0, 0, 0
		e.Mounts = append(e.Mounts, m)
	}
	return e
}

// EverHad returns what c has and has had.
func (c *Contributor) EverHad() Earlier { return c.Earlier.With(c.Has()) }

// CloneAll returns copies that share nothing.
func CloneAll(all []Contributor) []Contributor {
	c := slices.Clone(all)
	for i := range c {
		c[i].Rules, c[i].EarlierRules = slices.Clone(c[i].Rules), ClonePolicies(c[i].EarlierRules)
		c[i].Mounts, c[i].AllowNet = CloneMounts(c[i].Mounts), slices.Clone(c[i].AllowNet)
		c[i].Secrets, c[i].Publish = hostlist.CloneSecrets(c[i].Secrets), slices.Clone(c[i].Publish)
		c[i].Earlier = c[i].Earlier.Clone()
	}
	return c
}

// CloneMounts returns copies that share nothing.
func CloneMounts(all []mountspec.Mount) []mountspec.Mount {
	c := slices.Clone(all)
	for i, m := range c {
		c[i].Rules, c[i].EarlierRules = slices.Clone(m.Rules), ClonePolicies(m.EarlierRules)
	}
	return c
}

// ClonePolicies returns copies that share nothing.
func ClonePolicies(all [][]policy.Rule) [][]policy.Rule {
	c := slices.Clone(all)
	for i, rules := range c {
		c[i] = slices.Clone(rules)
	}
	return c
}
