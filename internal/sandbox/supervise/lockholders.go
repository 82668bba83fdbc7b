package supervise

import (
	"context"
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// holderPolicy is the policy of another sandbox, and the rules that it was made of.
type holderPolicy struct {
	rules  []policy.Rule
	policy *policy.Policy
}

// holderLocked returns the policy that bounds the locks of another sandbox. nil means that it is
// not known: then its locks cover all that is below them.
func (s *supervisor) holderLocked(h board.Holder) *policy.Policy {
	box, err := s.home.Open(h.Name)
	if err != nil || box.ID() != h.ID {
		s.warn("locks: read the policy of "+h.Name, err)
		return nil
	}
	rules := box.Record().Rules
	if known, ok := s.locks.policies[h]; ok && slices.Equal(known.rules, rules) {
		return known.policy
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		s.warn("locks: compile the policy of "+h.Name, err)
		return nil
	}
	s.locks.policies[h] = holderPolicy{rules, p}
	return p
}

// forgetHoldersLocked drops the policies of sandboxes that have no lock.
func (s *supervisor) forgetHoldersLocked(t *board.Table) {
	for h := range s.locks.policies {
		if !slices.ContainsFunc(t.Locks, func(l board.Lock) bool { return l.Holder == h }) {
			delete(s.locks.policies, h)
		}
	}
}

// rulesChanged has the other sandboxes read the rules of this one again, if it has locks: these
// cover what it may write. It does not wait for them.
func (s *supervisor) rulesChanged() {
	go func() {
		s.locks.mu.Lock()
		holds := len(s.heldByLocked(s.locks.self)) > 0
		s.locks.mu.Unlock()
		if holds {
			s.warn("locks: tell of other rules", s.tellOthers(context.Background()))
		}
	}()
}
