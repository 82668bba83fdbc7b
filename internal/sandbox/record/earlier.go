package record

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxEverHad bounds the hosts, secrets, ports and mounts that a sandbox has or has had, because the
// record keeps them all.
const maxEverHad = 1000

// Earlier is what a sandbox could see and reach at an earlier time, beside its earlier policies, and
// does not have now. Statements about its changes name it.
type Earlier struct {
	Nets     []string `json:"nets,omitempty"`
	AllowNet []string `json:"allow_net,omitempty"`
	// Secrets have no placeholders and no limits.
	Secrets []hostlist.Secret `json:"secrets,omitempty"`
	Publish []uint16          `json:"publish,omitempty"` // ports inside
	// Mounts have no identity of the source.
	Mounts []Mount `json:"mounts,omitempty"`
}

// NoteEarlier notes what the record had before a change. Errors: Exhausted if the change adds to a
// record that has had too much.
func (r *Record) NoteEarlier(before *Record) error {
	was, now := before.Describe(), r.Describe()
	r.Earlier = was.everHad().without(now.has())
	now.Earlier = r.Earlier
	if size := now.everHad().size(); size > maxEverHad && size > was.everHad().size() {
		return errdefs.New(errdefs.Exhausted, "sandbox %s: it has had %w, and keeps a list of them: make another sandbox", r.Name,
			&errdefs.Limit{Most: maxEverHad, Resource: "hosts, secrets, ports and mounts"})
	}
	return nil
}

// Describe describes the sandbox as a contributor. It shares what r refers to.
func (r *Record) Describe() Contributor {
	c := Contributor{
		ID: r.ID, Name: r.Name, Rules: r.Rules, EarlierRules: r.EarlierRules, Mounts: r.Mounts,
		Net: r.Net, AllowNet: r.AllowNet, Secrets: r.Secrets, Earlier: r.Earlier,
	}
	for _, p := range r.Publish {
		c.Publish = append(c.Publish, p.Inside)
	}
	return c
}

// add adds what another description of the same sandbox has, which may be older or newer.
func (c *Contributor) add(other *Contributor) {
	c.EarlierRules = union(c.EarlierRules, append([][]policy.Rule{other.Rules}, other.EarlierRules...), isSameRules)
	c.EarlierRules = minus(c.EarlierRules, [][]policy.Rule{c.Rules}, isSameRules)
	c.Earlier = c.everHad().with(other.everHad()).without(c.has())
}

// has returns what c has, in the form of what it had.
func (c *Contributor) has() Earlier {
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

// everHad returns what c has and has had.
func (c *Contributor) everHad() Earlier { return c.Earlier.with(c.has()) }

// with returns e with what other has.
func (e Earlier) with(other Earlier) Earlier {
	return Earlier{
		Nets:     union(e.Nets, other.Nets, isEqual),
		AllowNet: union(e.AllowNet, other.AllowNet, isEqual),
		Secrets:  union(e.Secrets, other.Secrets, isSameSecret),
		Publish:  union(e.Publish, other.Publish, isEqual),
		Mounts:   union(e.Mounts, other.Mounts, isSameMount),
	}
}

// without returns e without what other has.
func (e Earlier) without(other Earlier) Earlier {
	return Earlier{
		Nets:     minus(e.Nets, other.Nets, isEqual),
		AllowNet: minus(e.AllowNet, other.AllowNet, isEqual),
		Secrets:  minus(e.Secrets, other.Secrets, isSameSecret),
		Publish:  minus(e.Publish, other.Publish, isEqual),
		Mounts:   minus(e.Mounts, other.Mounts, isSameMount),
	}
}

func (e Earlier) size() int { return len(e.AllowNet) + len(e.Secrets) + len(e.Publish) + len(e.Mounts) }

// clone returns a copy that shares nothing.
func (e Earlier) clone() Earlier {
	return Earlier{slices.Clone(e.Nets), slices.Clone(e.AllowNet), hostlist.CloneSecrets(e.Secrets), slices.Clone(e.Publish), cloneMounts(e.Mounts)}
}

func isEqual[T comparable](a, b T) bool { return a == b }

func isSameRules(a, b []policy.Rule) bool { return slices.Equal(a, b) }

func isSameSecret(a, b hostlist.Secret) bool {
	return a.Text == b.Text && slices.Equal(a.Allow, b.Allow)
}

// isSameMount reports whether mounts show the same, and showed it in the same ways.
func isSameMount(a, b Mount) bool {
	return a.Source == b.Source && a.Target == b.Target && a.Name == b.Name && a.Mode == b.Mode &&
		slices.Equal(a.Rules, b.Rules) && slices.EqualFunc(a.EarlierRules, b.EarlierRules, isSameRules)
}

// union returns what the first list has, and then what only the second has.
func union[T any](first, second []T, same func(a, b T) bool) []T {
	return append(slices.Clone(first), minus(second, first, same)...)
}

// minus returns what the first list has and the second lacks, nil for nothing. It has nothing twice.
func minus[T any](first, second []T, same func(a, b T) bool) []T {
	var left []T
	for _, item := range first {
		isIt := func(has T) bool { return same(has, item) }
		if !slices.ContainsFunc(second, isIt) && !slices.ContainsFunc(left, isIt) {
			left = append(left, item)
		}
	}
	return left
}
