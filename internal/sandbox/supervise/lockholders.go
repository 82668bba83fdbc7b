package supervise

import (
	"context"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/pidfd"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// What is kept of sandboxes that had locks, because they may soon have others.
const (
	maxKnownHolders   = 16 // policies
	maxWatchedHolders = 64 // pidfds
)

// holderPolicy is the policy of another sandbox, and the rules that it was made of.
type holderPolicy struct {
	rules   []policy.Rule
	policy  *policy.Policy
	version uint64 // as the sandbox counts its rules; 0: not known
	stale   bool   // the rules may have changed since
}

// rulesAreLocked says which version of its rules another sandbox has.
func (l *lockState) rulesAreLocked(h board.Holder, version uint64) {
	p := l.policies[h]
	if p == nil {
		p = &holderPolicy{}
		l.policies[h] = p
	}
	if p.version != version {
		p.stale, p.version = true, version
	}
}

// holderLocked returns the policy that bounds the locks of another sandbox. nil means that it is
// not known: then its locks cover all that is below them.
func (s *supervisor) holderLocked(h board.Holder) *policy.Policy {
	known := s.locks.policies[h]
	if known != nil && !known.stale {
		return known.policy
	}
	box, err := s.home.Open(h.Name)
	if err != nil || box.ID() != h.ID {
		s.warn("locks: read the policy of "+h.Name, err)
		return nil
	}
	rules := box.Record().Rules
	if known == nil {
		known = &holderPolicy{}
		s.locks.policies[h] = known
	}
	if known.policy == nil || !slices.Equal(known.rules, rules) {
		p, err := policy.Compile(rules, policy.Options{})
		if err != nil {
			known.stale = true
			s.warn("locks: compile the policy of "+h.Name, err)
			return nil
		}
		known.rules, known.policy = rules, p
	}
	known.stale = false
	return known.policy
}

// forgetHoldersLocked drops the policies of sandboxes that have no lock if there are many.
func (s *supervisor) forgetHoldersLocked() {
	l := &s.locks
	if len(l.policies) <= maxKnownHolders {
		return
	}
	for h := range l.policies {
		if len(s.heldByLocked(h)) == 0 {
			delete(l.policies, h)
		}
	}
}

// rulesChanged has the other sandboxes read the rules of this one again, if it has locks: these
// cover what it may write. It does not wait for them.
func (s *supervisor) rulesChanged() {
	s.locks.rules.Add(1)
	go func() {
		s.locks.mu.Lock()
		holds := len(s.heldByLocked(s.locks.self)) > 0
		s.locks.mu.Unlock()
		if holds {
			s.warn("locks: tell of other rules", s.tellOthers(context.Background()))
		}
	}()
}

// holderWatch waits for the end of another sandbox. It goes on when the locks of that have ended,
// because it may soon have others.
type holderWatch struct {
	end   context.CancelFunc
	runs  bool // the process that is watched is that of the holder
	ended bool // that process has ended, or cannot be watched
}

// runsLocked reports whether a holder is known to go on.
func (s *supervisor) runsLocked(h board.Holder) bool {
	w := s.locks.watched[h]
	return h == s.locks.self || w != nil && w.runs && !w.ended
}

// watchHoldersLocked waits for the ends of these holders, and of some that had locks before.
func (s *supervisor) watchHoldersLocked(holders map[board.Holder]bool) {
	l := &s.locks
	for h, w := range l.watched {
		if !holders[h] && (w.ended || len(l.watched) > maxWatchedHolders) {
			w.end()
			delete(l.watched, h)
		}
	}
	for h := range holders {
		if l.watched[h] != nil {
			continue
		}
		ctx, end := context.WithCancel(context.Background())
		w := &holderWatch{end: end}
		l.watched[h] = w
		go s.watchHolder(ctx, h, w)
	}
}

// watchHolder looks at the table when a holder has ended, until it is no longer in the table, which
// ends ctx.
func (s *supervisor) watchHolder(ctx context.Context, h board.Holder, w *holderWatch) {
	l := &s.locks
	if process, err := pidfd.Open(h.PID); err == nil {
		defer process.Close()
		// Another process may have got the number meanwhile, but not from now on.
		runs := l.board.IsAlive(h)
		l.mu.Lock()
		w.runs = runs
		l.mu.Unlock()
		if err := pidfd.Await(ctx, process); err != nil && ctx.Err() == nil {
			s.log.Warn("locks: wait for a holder", "holder", h.Name, "err", err)
		}
		s.noteKilled(ctx, h)
	}
	l.mu.Lock()
	w.ended = true
	l.mu.Unlock()
	for ctx.Err() == nil {
		s.locksMayHaveEnded()
		select {
		case <-ctx.Done():
		case <-time.After(lockPause):
		}
	}
}
