package supervise

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// beginGrants stores which grants ended while the sandbox did not run, and starts the clock.
func (s *supervisor) beginGrants(context.Context) error {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	if s.record.GrantsEnded {
		if err := s.box.StoreEndedGrants(); err != nil {
			return err
		}
	}
	s.setGrantClockLocked()
	return nil
}

// replacePolicy puts rules into force that a client has stored.
func (s *supervisor) replacePolicy(rules []policy.Rule) error {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	return s.setPolicy(rules)
}

// takeGrants puts the rules of the record into force. Grants of the past are dropped from it.
func (s *supervisor) takeGrants() error {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	return s.takeGrantsLocked()
}

func (s *supervisor) takeGrantsLocked() error {
	box, err := s.home.Open(s.box.Name())
	if err != nil {
		return err
	}
	rec := box.Record()
	if rec.GrantsEnded {
		if err := box.StoreEndedGrants(); err != nil {
			return err
		}
		rec = box.Record()
	}
	if err := s.setPolicy(rec.Rules); err != nil {
		return err
	}
	s.mu.Lock()
	s.record.Paths = rec.Paths
	s.mu.Unlock()
	s.setGrantClockLocked()
	return nil
}

// setGrantClockLocked sets the clock for the next grant of a path that ends.
func (s *supervisor) setGrantClockLocked() {
	end, ends := s.nextGrantEnd()
	s.grants.setLocked(end, ends, func() {
		s.endGrants(&s.grants, s.nextGrantEnd, s.setGrantClockLocked, s.takeGrantsLocked)
	})
}

func (s *supervisor) nextGrantEnd() (end time.Time, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.NextGrantEnd()
}
