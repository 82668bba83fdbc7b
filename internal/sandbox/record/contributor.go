package record

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/contributor"
)

// Contributor is where changes are from that commands of the sandbox did not make.
type Contributor = contributor.Contributor

// maxContributors bounds the contributors of a sandbox: each has all its rules in the record.
const maxContributors = 100

// maxEverHad bounds the hosts, secrets, ports and mounts that a sandbox has or has had, because the
// record keeps them all.
const maxEverHad = 1000

// AddContributor notes that changes of the sandbox of other come into that of r, with what came
// into them. Errors: Exhausted.
func (r *Record) AddContributor(other *Record) error {
	c := other.clone()
	for _, from := range append(c.Contributors, c.Describe()) {
		if from.ID == string(r.ID) && from.ID != "" {
			continue
		}
		isFrom := func(c Contributor) bool { return c.ID == from.ID && c.Imported == from.Imported }
		if i := slices.IndexFunc(r.Contributors, isFrom); i >= 0 && from.ID != "" {
			from.Add(&r.Contributors[i]) // it may have come by another sandbox, as it was earlier
		}
		r.Contributors = append(slices.DeleteFunc(r.Contributors, isFrom), from)
	}
	if len(r.Contributors) > maxContributors {
		return errdefs.New(errdefs.Exhausted, "sandbox %s: it would have changes of %d sandboxes and files, more than %d: merge into another sandbox", r.Name, len(r.Contributors), maxContributors)
	}
	return nil
}

// NoteEarlier notes what the record had before a change. Errors: Exhausted if the change adds to a
// record that has had too much.
func (r *Record) NoteEarlier(before *Record) error {
	was, now := before.Describe(), r.Describe()
	r.Earlier = was.EverHad().Without(now.Has())
	now.Earlier = r.Earlier
	if size := now.EverHad().Size(); size > maxEverHad && size > was.EverHad().Size() {
		return errdefs.New(errdefs.Exhausted, "sandbox %s: it has had %w, and keeps a list of them: make another sandbox", r.Name,
			&errdefs.Limit{Most: maxEverHad, Resource: "hosts, secrets, ports and mounts"})
	}
	return nil
}

// Describe describes the sandbox as a contributor. It shares what r refers to.
func (r *Record) Describe() Contributor {
	c := Contributor{
		ID: string(r.ID), Name: r.Name, Rules: r.Rules, EarlierRules: r.EarlierRules, Mounts: r.Mounts,
		Net: r.Net, AllowNet: r.AllowNet, Secrets: r.Secrets, Earlier: r.Earlier,
	}
	for _, p := range r.Publish {
		c.Publish = append(c.Publish, p.Inside)
	}
	return c
}
