package supervise

import (
	"context"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// handleLocks takes locks, or follows those of others. It is false for any other operation.
func (s *supervisor) handleLocks(ctx context.Context, c api.Conn, r api.Request) bool {
	switch {
	case r.Op == api.OpLock && r.Lock != nil:
		s.handleLock(ctx, c, *r.Lock)
	case r.Op == api.OpLocks:
		s.handleFollow(ctx, c)
	default:
		return false
	}
	return true
}

// handleFollow follows the locks of others each time that the client at c says so. The connection
// is no reason to stay, but a change is.
func (s *supervisor) handleFollow(ctx context.Context, c api.Conn) {
	s.release()
	defer s.holdAgain()
	_ = api.ServeLocks(c, func(change *api.LocksChanged) error { // it returns when the client leaves
		if !s.hold() {
			return c.Close() // the sandbox is stopping
		}
		defer s.release()
		err := s.followChange(ctx, change)
		if s.isStopping() { // perhaps it was not followed, and commands still run
			return c.Close()
		}
		return err
	})
}

// handleLock takes locks for the client at c, which may leave meanwhile.
func (s *supervisor) handleLock(ctx context.Context, c api.Conn, r api.LockRequest) {
	s.release() // it is no reason to stay
	defer s.holdAgain()
	gone := c.IsGone
	if r.Wait > 0 {
		waits, cancel := untilClientLeaves(ctx, c)
		defer cancel()
		if err := c.Send(api.Reply{OK: true}); err != nil {
			return
		}
		ctx, gone = waits, func() bool { return waits.Err() != nil }
	}
	answer := api.Reply{OK: true}
	if err := s.lockFor(ctx, r, gone); err != nil {
		answer = api.Reply{Error: api.FailureOf(err)}
	}
	s.warn("control: lock not delivered", c.Send(answer))
}

// lockPaths takes locks, and waits for them if r says so. If an error comes back, none is taken.
func (s *supervisor) lockPaths(ctx context.Context, r api.LockRequest) error {
	return s.lockFor(ctx, r, func() bool { return ctx.Err() != nil })
}

// lockFor is lockPaths, and takes none if the client is gone.
func (s *supervisor) lockFor(ctx context.Context, r api.LockRequest, gone func() bool) error {
	request, err := s.readLock(r)
	if err != nil {
		return err
	}
	ticket, granted, err := s.askForLocks(ctx, request, r.Wait > 0)
	if err == nil && granted != nil {
		err = s.awaitLocks(ctx, r.Wait, granted)
	}
	if err == nil && gone() { // it could not tell anybody of the locks
		err = errdefs.New(errdefs.Canceled, "lock: the client is gone")
	}
	if err == nil {
		s.append(lockEvent(r, request))
		return nil
	}
	if ticket != 0 {
		s.withdrawLocks(ticket)
	}
	return err
}

// readLock checks what is asked for. Only what the sandbox itself may write can be locked, so a
// lock takes from others what the holder has.
func (s *supervisor) readLock(r api.LockRequest) (board.Request, error) {
	request := board.Request{Advisory: r.Advisory, For: r.For}
	if r.Wait < 0 || r.Wait > api.MaxLockWait {
		return request, errdefs.New(errdefs.Invalid, "lock: wait %s: want at most %s", r.Wait, api.MaxLockWait)
	}
	own := s.policy.Load().WithLocks(nil)
	for _, text := range r.Paths {
		p, err := vpath.ParseText(text)
		if err != nil {
			return request, errdefs.New(errdefs.Invalid, "lock: path %s: %w", vpath.Quote(text), err)
		}
		if d := own.Decide(p); d.Permission != policy.Write {
			return request, errdefs.New(errdefs.Denied, "lock: %s: the sandbox %s may not write it%s", p, s.record.Name, whyNoWrite(own, d))
		}
		request.Paths = append(request.Paths, p)
	}
	return request, request.Check()
}

// whyNoWrite says why a path cannot be written, as programs inside may know it: without a rule that
// hides, whose pattern may name what is hidden, and without the place on the host where a rule was
// written.
func whyNoWrite(p *policy.Policy, d policy.Decision) string {
	switch {
	case d.Permission == policy.None:
		return ""
	case d.Rule == policy.NoRule:
		return ": " + d.Reason
	}
	return ": the rule " + vpath.Quote(p.Rule(d.Rule).Pattern) + " permits " + d.Permission.String()
}

// askForLocks takes locks, or begins to wait for them: then granted is closed in time. The ticket
// names what was taken or begun.
func (s *supervisor) askForLocks(ctx context.Context, request board.Request, wait bool) (ticket uint64, granted <-chan struct{}, err error) {
	l := &s.locks
	err = s.changeLocks(ctx, func(t *board.Table) error {
		var blocker *board.Blocker
		var err error
		now := time.Now()
		ticket, blocker, err = t.Acquire(l.self, request, now)
		if err != nil || blocker == nil {
			return err
		}
		if !wait {
			return s.errBlocked(blocker)
		}
		if ticket, err = t.Wait(l.self, request, now); err == nil {
			l.ticket, l.news = ticket, make(chan struct{})
			granted = l.news
		}
		return err
	})
	return ticket, granted, err
}

// errBlocked names what is in the way. A path that the policy hides is not named.
func (s *supervisor) errBlocked(b *board.Blocker) error {
	what := "a path that overlaps"
	if p, err := vpath.ParseText(b.Path); err == nil && s.shows(p) {
		what = p.String()
	}
	if b.Waits {
		return errdefs.New(errdefs.Precondition, "lock: the sandbox %s waits for %s, and comes first: wait for it (--wait; in the API: wait)", b.Name, what)
	}
	return errdefs.New(errdefs.Precondition, "lock: %s: there is %s: wait for it (--wait; in the API: wait)", what, lockReason(b.Lock))
}

// awaitLocks returns when the locks are granted, and every other sandbox knows.
func (s *supervisor) awaitLocks(ctx context.Context, patience time.Duration, granted <-chan struct{}) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-granted:
		return s.tellOthers(ctx) // who has granted them may still tell
	case <-timer.C:
		return errdefs.New(errdefs.Deadline, "lock: other sandboxes have not unlocked the paths within %s", patience)
	case <-s.stopping:
		return errdefs.New(errdefs.Unavailable, "the sandbox is stopping")
	case <-ctx.Done():
		return errdefs.New(errdefs.Canceled, "lock: %w", ctx.Err())
	}
}

// withdrawLocks ends a request, whether it waits or was granted.
func (s *supervisor) withdrawLocks(ticket uint64) {
	err := s.changeLocks(context.Background(), func(t *board.Table) error {
		t.Release(s.locks.self, func(l board.Lock) bool { return l.Ticket == ticket })
		if slices.ContainsFunc(t.Waiting, func(w board.Waiting) bool { return w.Holder == s.locks.self && w.Ticket == ticket }) {
			t.Withdraw(s.locks.self)
		}
		return nil
	})
	s.warn("locks: withdraw", err)
}

// unlock ends locks of this sandbox.
func (s *supervisor) unlock(ctx context.Context, r api.LockRequest) error {
	var released []string
	err := s.changeLocks(ctx, func(t *board.Table) error {
		if r.All {
			released = t.Release(s.locks.self, func(board.Lock) bool { return true })
			return nil
		}
		for _, text := range r.Paths {
			gone := t.Release(s.locks.self, func(l board.Lock) bool { return l.Path == text })
			if len(gone) == 0 {
				return errdefs.New(errdefs.NotFound, "unlock: /%s: the sandbox %s has not locked it", text, s.record.Name)
			}
			released = append(released, gone...)
		}
		return nil
	})
	if len(released) > 0 && (err == nil || errdefs.Is(err, errdefs.Unavailable)) {
		s.append(audit.LocksChanged{Action: audit.LocksEnd, Paths: lockPathTexts(released)})
	}
	return err
}

func lockEvent(r api.LockRequest, request board.Request) audit.LocksChanged {
	e := audit.LocksChanged{Action: audit.LocksBegin, Advisory: r.Advisory, ForMS: r.For.Milliseconds()}
	for _, p := range request.Paths {
		e.Paths = append(e.Paths, audit.Path(p))
	}
	return e
}

func lockPathTexts(texts []string) []audit.Path {
	var paths []audit.Path
	for _, text := range texts {
		if p, err := vpath.ParseText(text); err == nil {
			paths = append(paths, audit.Path(p))
		}
	}
	return paths
}
