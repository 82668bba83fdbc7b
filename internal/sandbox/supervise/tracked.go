package supervise

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// hides reports whether the sandbox does not see the content of the source's file at p: the
// policy in force hides it or shows another content, or it is left out.
func (s *supervisor) hides(p vpath.Path) bool {
	if s.policy.Load().HidesContent(p) {
		return true
	}
	if s.absent == nil {
		return false
	}
	for dir := range p.Ancestors() {
		if !dir.IsRoot() && s.absent(dir, true) {
			return true
		}
	}
	return s.absent(p, false)
}

// renewIndex brings the delta's git index up to date with the policy in force.
func (s *supervisor) renewIndex() error {
	var earlier []*policy.Policy
	for _, rules := range s.record.EarlierRules {
		p, err := policy.Compile(rules, policy.Options{Reserved: s.reserved})
		if err != nil {
			return err
		}
		earlier = append(earlier, p)
	}
	err := gitview.RenewIndex(s.stack, s.hides, func(p vpath.Path) bool {
		return slices.ContainsFunc(earlier, func(e *policy.Policy) bool { return e.HidesContent(p) })
	})
	if err != nil {
		s.log.Error("git index of the delta", "err", err) // a review marks what comes of it
	}
	return nil
}
