package attest

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Contributor is where changes of the sandbox are from that it did not make itself: another
// sandbox, with what it could see and reach, or an imported file.
type Contributor struct {
	Name     string   `json:"name,omitempty"`
	ID       string   `json:"id,omitempty"`
	Imported string   `json:"imported,omitempty"` // SHA-256 of the file; nothing else is known then
	Policies []Policy `json:"policies,omitempty"` // as Predicate.Policies
	Mounts   []Mount  `json:"mounts,omitempty"`
	// EarlierMounts are as Predicate.EarlierMounts.
	EarlierMounts []Mount  `json:"earlier_mounts,omitempty"`
	Network       *Network `json:"network,omitempty"`
}

func contributorsOf(stored []record.Contributor) ([]Contributor, error) {
	var list []Contributor
	for i := range stored {
		c := Contributor{Imported: stored[i].Imported}
		if c.Imported == "" {
			var err error
			if c, err = contributorOf(&stored[i]); err != nil {
				return nil, err
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// contributorOf describes a sandbox.
func contributorOf(from *record.Contributor) (c Contributor, err error) {
	c.Name, c.ID = from.Name, from.ID
	if c.Policies, err = policiesOf(from.Rules, from.EarlierRules); err != nil {
		return c, err
	}
	if c.Mounts, err = mountsOf(from.Mounts); err != nil {
		return c, err
	}
	if c.EarlierMounts, err = mountsOf(from.Earlier.Mounts); err != nil {
		return c, err
	}
	c.Network, err = networkOf(from)
	return c, err
}

// check checks that the policies are known, unless the changes were imported. Errors: Invalid.
func (c *Contributor) check() error {
	isSandbox := c.ID != "" && len(c.Policies) > 0 && c.Network != nil
	isFile := record.IsDigest(c.Imported) && c.ID == "" && c.Name == "" && len(c.Policies) == 0 && len(c.Mounts)+len(c.EarlierMounts) == 0 && c.Network == nil
	if isSandbox == isFile || isSandbox && c.Imported != "" {
		return errdefs.New(errdefs.Invalid, "its contributor %s is neither a sandbox with its policies nor an imported file", vpath.Quote(c.ID+c.Imported))
	}
	if isSandbox {
		return c.Network.check()
	}
	return nil
}

// String names the contributor, escaped.
func (c *Contributor) String() string {
	if c.Imported != "" {
		return "the imported file with the SHA-256 " + vpath.Escape(c.Imported)
	}
	return "the sandbox " + vpath.Escape(c.Name)
}

// hasContributor reports whether the statement names where the changes of a record of the audit log
// are from. It does for any other record.
func (st *Statement) hasContributor(e audit.Event) bool {
	var id, imported string
	switch e := e.(type) {
	case audit.Merged:
		id = e.FromID
	case audit.ChangesImported:
		imported = e.SHA256
	default:
		return true
	}
	for _, c := range st.Predicate.Contributors {
		if c.ID == id && c.Imported == imported {
			return true
		}
	}
	return id != "" && id == st.Predicate.Sandbox.ID
}
