package record

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxContributors bounds the contributors of a sandbox: each has all its rules in the record.
const maxContributors = 100

// Contributor is where changes of a sandbox are from that it did not make itself: another sandbox,
// by a merge, or an imported file. A sandbox is described as it was at the last merge.
type Contributor struct {
	ID       ID     `json:"id,omitempty"`
	Name     string `json:"name,omitempty"`
	Imported string `json:"imported,omitempty"` // SHA-256 of a file; nothing else is known then

	Rules        []policy.Rule     `json:"rules,omitempty"`
	EarlierRules [][]policy.Rule   `json:"earlier_rules,omitempty"`
	Mounts       []Mount           `json:"mounts,omitempty"`
	Net          string            `json:"net,omitempty"`
	AllowNet     []string          `json:"allow_net,omitempty"`
	Secrets      []hostlist.Secret `json:"secrets,omitempty"`
}

// AddContributor notes that changes of the sandbox of other come into that of r, with what came
// into them. Errors: Exhausted.
func (r *Record) AddContributor(other *Record) error {
	c := other.clone()
	all := append(c.Contributors, Contributor{
		ID: c.ID, Name: c.Name, Rules: c.Rules, EarlierRules: c.EarlierRules, Mounts: c.Mounts, Net: c.Net, AllowNet: c.AllowNet, Secrets: c.Secrets,
	})
	for _, from := range all {
		if from.ID == r.ID && from.ID != "" {
			continue
		}
		r.Contributors = slices.DeleteFunc(r.Contributors, func(c Contributor) bool { return c.ID == from.ID && c.Imported == from.Imported })
		r.Contributors = append(r.Contributors, from)
	}
	if len(r.Contributors) > maxContributors {
		return errdefs.New(errdefs.Exhausted, "sandbox %s: it would have changes of %d sandboxes and files, more than %d: merge into another sandbox", r.Name, len(r.Contributors), maxContributors)
	}
	return nil
}

func cloneContributors(all []Contributor) []Contributor {
	c := slices.Clone(all)
	for i := range c {
		c[i].Rules, c[i].EarlierRules = slices.Clone(c[i].Rules), clonePolicies(c[i].EarlierRules)
		c[i].Mounts, c[i].AllowNet = cloneMounts(c[i].Mounts), slices.Clone(c[i].AllowNet)
		c[i].Secrets = hostlist.CloneSecrets(c[i].Secrets)
	}
	return c
}

func cloneMounts(all []Mount) []Mount {
	c := slices.Clone(all)
	for i, m := range c {
		c[i].Rules, c[i].EarlierRules = slices.Clone(m.Rules), clonePolicies(m.EarlierRules)
	}
	return c
}
