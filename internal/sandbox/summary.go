package sandbox

import (
	"cmp"
	"slices"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/fault"
)

// Summary is what a person is told when a run has ended.
type Summary struct {
	// Files are the changed paths, as Review.Files has them.
	Files []FileDiff
	// Groups are what some of them are shown in.
	Groups []Group
	// Denials are what the policy refused, by rule, the most frequent first.
	Denials []DenialGroup
}

// DenialGroup is what one rule refused.
type DenialGroup struct {
	Rule   string // its pattern, "" for no rule: the default
	Source string // where the rule is from
	Count  int
	Paths  []string // the first few, each once, escaped
	// Omitted are refusals that the audit log only counts, by whichever rule.
	Omitted bool
}

// maxDenialPaths is how many paths of a group are kept.
const maxDenialPaths = 5

// CountStatus returns how many paths have the status.
func (s *Summary) CountStatus(status Status) int {
	n := 0
	for _, f := range s.Files {
		if f.Status == status {
			n++
		}
	}
	return n
}

// Summarise lists what the sandbox has changed, and what it was refused since
// the audit record with the number afterSeq (0: since ever).
func (s *Sandbox) Summarise(afterSeq uint64) (Summary, error) {
	var sum Summary
	r, err := s.Review()
	if err != nil {
		return sum, err
	}
	sum.Files, sum.Groups = r.Files(), r.Groups()
	if err := r.Close(); err != nil {
		return sum, err
	}
	sum.Denials, err = GroupDenials(func(do func(audit.Record) error) error {
		err := audit.Read(s.AuditPath(), func(r audit.Record) error {
			if r.Seq <= afterSeq {
				return nil
			}
			return do(r)
		})
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
	return sum, err
}

// GroupDenials sums up the refusals among the records that read calls do with.
// Errors: those of read.
func GroupDenials(read func(do func(audit.Record) error) error) ([]DenialGroup, error) {
	type key struct{ rule, source string }
	groups := map[key]*DenialGroup{}
	omitted := 0
	err := read(func(r audit.Record) error {
		if o, ok := r.Event.(audit.EventsOmitted); ok {
			omitted += int(o.Refusals())
		}
		e, ok := r.Event.(audit.PermissionDenied)
		if !ok {
			return nil
		}
		k := key{string(e.Rule), string(e.RuleSource)}
		g := groups[k]
		if g == nil {
			g = &DenialGroup{Rule: k.rule, Source: k.source}
			groups[k] = g
		}
		g.Count += max(e.Count, 1)
		path := HostPath(e.Path).String()
		if len(g.Paths) < maxDenialPaths && !slices.Contains(g.Paths, path) {
			g.Paths = append(g.Paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]DenialGroup, 0, len(groups))
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b DenialGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source, b.Source))
	})
	if omitted > 0 {
		list = append(list, DenialGroup{Count: omitted, Omitted: true})
	}
	return list, nil
}
