package record

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// checkScratch refuses scratch directories that the sandbox cannot have. What they contain
// is not part of the delta, so no limit bounds it.
func (r *Record) checkScratch() error {
	if len(r.Scratch) > 0 && (r.Limits.DiskBytes > 0 || r.Limits.DiskInodes > 0) {
		return errdefs.New(errdefs.Precondition, "--scratch and --disk exclude each other: a limit of the disk does not bound what a scratch directory contains; leave one of them out")
	}
	return scratch.Check(r.Scratch)
}

// ScratchStore returns the directory with what the scratch directories contain.
func (s *Sandbox) ScratchStore() scratch.Store { return scratch.StoreIn(s.Dir()) }

// CheckScratchRules refuses rules that would not apply to what the scratch directories have.
// Errors: Precondition.
func (s *Sandbox) CheckScratchRules(rules []policy.Rule) error {
	r := s.Record()
	if len(r.Scratch) == 0 {
		return nil
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		return err
	}
	if err := scratch.CheckPolicy(p, r.Scratch); err != nil {
		return err
	}
	return s.ScratchStore().CheckRules(rules, r.Scratch)
}
