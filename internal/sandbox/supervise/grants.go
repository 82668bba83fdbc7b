package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// grantClock ends grants of paths in time, by the wall clock, as hostClock does.
type grantClock struct {
	mu    sync.Mutex // also: one change of the rules at a time
	timer *time.Timer
	over  bool // the sandbox ends
}

// beginGrants stores which grants ended while the sandbox did not run, and starts the clock.
func (s *supervisor) beginGrants(context.Context) error {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	if s.record.GrantsEnded {
		if err := s.box.StoreEndedGrants(); err != nil {
			return err
		}
	}
	s.setGrantTimerLocked()
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
	s.setGrantTimerLocked()
	return nil
}

func (s *supervisor) setGrantTimerLocked() {
	if s.grants.timer != nil {
		s.grants.timer.Stop()
		s.grants.timer = nil
	}
	s.mu.Lock()
	end, ends := s.record.NextGrantEnd()
	s.mu.Unlock()
	if ends && !s.grants.over {
		s.grants.timer = time.AfterFunc(max(0, min(time.Until(end), hostPause)), s.endPathGrants)
	}
}

// endPathGrants takes back what has ended. A view that cannot be changed must not go on.
func (s *supervisor) endPathGrants() {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	if s.grants.over {
		return
	}
	s.mu.Lock()
	end, ends := s.record.NextGrantEnd()
	s.mu.Unlock()
	if !ends || time.Now().Before(end) {
		s.setGrantTimerLocked()
		return
	}
	if err := s.takeGrantsLocked(); err != nil {
		s.log.Error("a grant does not end, so the sandbox stops", "err", err)
		s.stop()
	}
}

// stopGrants stops the clock.
func (s *supervisor) stopGrants() {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	s.grants.over = true
	if s.grants.timer != nil {
		s.grants.timer.Stop()
	}
}
