package supervise

import (
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// hides reports whether the sandbox sees nothing of the source's file at p: the
// policy in force hides it, or it is left out.
func (s *supervisor) hides(p vpath.Path) bool {
	if s.policy.Load().Decide(p).Permission == policy.None {
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
