package supervise

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// lockPatience bounds how long another sandbox may take to enforce a change of the locks.
const lockPatience = 5 * time.Second

// lockPause is the pause between looks at a holder that cannot be waited for.
const lockPause = 50 * time.Millisecond

// lockState is what this process knows of the locks of the source. The table itself is on the disk.
type lockState struct {
	board *board.Board // nil before joinBoard
	self  board.Holder
	// inForce are the mandatory locks of others; guarded by the supervisor's grants.mu.
	inForce []policy.Lock

	mu      sync.Mutex // one look at the table at a time
	timer   *time.Timer
	watched map[board.Holder]*holderWatch
	held    []board.Lock // as the last look found them, or the changes since
	changes uint64       // board.Table.Changes of held
	// policies are those of sandboxes that have or had locks.
	policies map[board.Holder]*holderPolicy
	rules    atomic.Uint64 // how often the rules of this sandbox were changed, from 1 on
	ticket   uint64        // of our request that waits; 0: none
	news     chan struct{} // closed with each look that finds the ticket granted
	over     bool

	followers api.Followers // the other sandboxes
}

// joinBoard puts the locks of other sandboxes into force, and has their changes told to this
// process. The control socket is there already, and no command is, so none is missed.
func (s *supervisor) joinBoard(context.Context) error {
	l := &s.locks
	l.board = board.Open(s.home, &s.record)
	l.self = board.Holder{ID: s.record.ID, Name: s.record.Name, PID: os.Getpid()}
	l.watched = map[board.Holder]*holderWatch{}
	l.policies = map[board.Holder]*holderPolicy{}
	l.rules.Add(1)
	if err := l.board.Join(l.self); err != nil {
		return err
	}
	t, err := l.board.Locks()
	if err != nil {
		return err
	}
	l.mu.Lock()
	s.lookLocked(&t)
	l.mu.Unlock()
	return s.serveBoard()
}

// leaveBoard ends the locks of this sandbox.
func (s *supervisor) leaveBoard() {
	if s.locks.board == nil {
		return
	}
	u, err := s.locks.board.Leave(s.locks.self)
	s.warn("locks: end", err)
	if u.Change != nil {
		s.warn("locks: tell", s.tellChange(context.Background(), u))
	}
}

// stop ends what follows the locks of others.
func (l *lockState) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
	for _, w := range l.watched {
		w.end()
	}
}

// answerLocks ends own locks, lists all, or posts a message. It refuses any other operation.
func (s *supervisor) answerLocks(ctx context.Context, r api.Request) (api.Reply, error) {
	switch {
	case r.Op == api.OpUnlock && r.Lock != nil:
		return api.Reply{OK: true}, s.unlock(ctx, *r.Lock)
	case r.Op == api.OpHeld:
		list, err := s.shownLocks()
		return api.Reply{OK: true, Locks: list}, err
	case r.Op == api.OpPost && r.Post != nil:
		m, err := s.postMessage(*r.Post)
		return api.Reply{OK: true, Posted: m.Seq}, err
	}
	return api.Reply{}, errdefs.New(errdefs.Invalid, "control: unknown operation %q", r.Op)
}

// lookAtLocks reads the table, takes the locks for which this sandbox waits if its turn has come,
// and puts those of others into force.
func (s *supervisor) lookAtLocks(ctx context.Context) error {
	if waits, err := s.readLocks(); err != nil || !waits {
		return err
	}
	return s.changeLocks(ctx, func(*board.Table) error { return nil })
}

// readLocks puts the locks of others into force if this sandbox waits for none. Then it has nothing
// to change in the table.
func (s *supervisor) readLocks() (waits bool, err error) {
	l := &s.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ticket != 0 {
		return true, nil
	}
	t, err := l.board.Locks()
	if err == nil {
		s.lookLocked(&t)
	}
	return false, err
}

// followChange puts into force what another sandbox has changed. It reads the table only if it does
// not know what was before, or if this sandbox waits for locks.
func (s *supervisor) followChange(ctx context.Context, c *api.LocksChanged) error {
	if c == nil || !s.applyChange(c) {
		return s.lookAtLocks(ctx)
	}
	return nil
}

func (s *supervisor) applyChange(c *api.LocksChanged) bool {
	l := &s.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ticket != 0 || c.From != l.changes {
		return false
	}
	for _, lock := range c.Begun {
		l.rulesAreLocked(lock.Holder, c.Rules)
	}
	t := c.Apply(board.Table{Changes: l.changes, Locks: l.held}, time.Now())
	s.followLocked(&t)
	return true
}

// changeLocks changes the table, puts the locks of others into force, and returns when every other
// sandbox does the same. An error may be one of another sandbox: the table has changed then.
func (s *supervisor) changeLocks(ctx context.Context, change func(*board.Table) error) error {
	l := &s.locks
	l.mu.Lock()
	u, err := l.board.Update(s.runsLocked, func(t *board.Table) error {
		if err := change(t); err != nil {
			return err
		}
		t.Promote(l.self, time.Now())
		return nil
	})
	if err == nil {
		s.followLocked(&u.Table)
	}
	l.mu.Unlock()
	if err != nil || u.Change == nil {
		return err
	}
	return s.tellChange(ctx, u)
}

// lookLocked is followLocked for a table that was read because others may have changed: also their
// rules.
func (s *supervisor) lookLocked(t *board.Table) {
	for _, p := range s.locks.policies {
		p.stale, p.version = true, 0
	}
	s.followLocked(t)
}

// followLocked puts the locks of others into force, and sees to it that their end is noticed.
func (s *supervisor) followLocked(t *board.Table) {
	l := &s.locks
	waits := slices.ContainsFunc(t.Waiting, func(w board.Waiting) bool { return w.Ticket == l.ticket })
	if l.ticket != 0 && !waits {
		l.ticket = 0
		close(l.news)
	}
	var locks []policy.Lock
	others := map[board.Holder]bool{}
	for _, lock := range t.Locks {
		if lock.Holder == l.self {
			continue
		}
		if !lock.Advisory || waits {
			others[lock.Holder] = true
		}
		if p, err := vpath.ParseText(lock.Path); err == nil && !lock.Advisory {
			locks = append(locks, policy.Lock{Path: p, Reason: lockReason(lock), Holder: s.holderLocked(lock.Holder)})
		}
	}
	for _, w := range t.Waiting {
		if waits && w.Holder != l.self {
			others[w.Holder] = true
		}
	}
	if l.over {
		return
	}
	s.noteTimeOver(l.held, t.Locks)
	l.held, l.changes = t.Locks, t.Changes
	s.forgetHoldersLocked()
	s.enforceLocks(locks)
	s.watchHoldersLocked(others)
	if l.timer != nil {
		l.timer.Stop()
	}
	if end, ends := t.Next(); ends {
		l.timer = time.AfterFunc(max(0, min(time.Until(end), clockPause)), s.locksMayHaveEnded)
	}
}

// noteTimeOver records own locks whose time was over between two looks.
func (s *supervisor) noteTimeOver(before, after []board.Lock) {
	var ended []string
	for _, l := range before {
		if l.Holder == s.locks.self && !l.Until.IsZero() && !time.Now().Before(l.Until) && !slices.Contains(after, l) {
			ended = append(ended, l.Path)
		}
	}
	if len(ended) > 0 {
		s.append(audit.LocksChanged{Action: audit.LocksEnd, Paths: lockPathTexts(ended), Reason: audit.LocksTimeOver})
	}
}

// lastLocks is the end of the own locks with the run; nothing if there is none.
func (s *supervisor) lastLocks() []audit.Event {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	paths := s.heldByLocked(s.locks.self)
	if len(paths) == 0 {
		return nil
	}
	return []audit.Event{audit.LocksChanged{Action: audit.LocksEnd, Paths: lockPathTexts(paths), Reason: audit.LocksStopped}}
}

// heldByLocked are the paths that a holder had locked at the last look.
func (s *supervisor) heldByLocked(h board.Holder) []string {
	var paths []string
	for _, l := range s.locks.held {
		if l.Holder == h {
			paths = append(paths, l.Path)
		}
	}
	return paths
}

// noteKilled records the locks of another sandbox whose process ended while it had them: one that
// stops gives them up before. ctx is done once they are not in the table.
func (s *supervisor) noteKilled(ctx context.Context, h board.Holder) {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	paths := s.heldByLocked(h)
	if ctx.Err() == nil && len(paths) > 0 && !s.locks.over {
		s.append(audit.LocksChanged{Action: audit.LocksEnd, Paths: lockPathTexts(paths), Reason: audit.LocksKilled, Sandbox: h.Name})
	}
}

// lockReason says who has a lock, for people and programs.
func lockReason(l board.Lock) string {
	reason := "a lock of the sandbox " + l.Name
	if !l.Until.IsZero() {
		reason += " until " + l.Until.Format(time.RFC3339)
	}
	return reason
}

// enforceLocks makes what others have locked, and may write, at most readable. Open files follow.
func (s *supervisor) enforceLocks(locks []policy.Lock) {
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	if slices.Equal(locks, s.locks.inForce) {
		return
	}
	s.locks.inForce = locks
	p := s.policy.Load().WithLocks(locks)
	s.policy.Store(p)
	s.view.SetPolicy(p)
}

// locksMayHaveEnded looks at the table after the time of a lock, or the end of a holder. A table
// that cannot be read leaves in force what is.
func (s *supervisor) locksMayHaveEnded() {
	s.warn("locks: look", s.lookAtLocks(context.Background()))
}

// tellOthers has the other sandboxes of the source read the table, and waits for them.
func (s *supervisor) tellOthers(ctx context.Context) error {
	members, err := s.locks.board.Members()
	if err != nil {
		return err
	}
	return s.tell(ctx, members, nil)
}

// tellChange is tellOthers for a change of the locks: who knows what was before need not read.
func (s *supervisor) tellChange(ctx context.Context, u board.Update) error {
	return s.tell(ctx, u.Members, &api.LocksChanged{Change: *u.Change, Rules: s.locks.rules.Load()})
}

// tell has the other members follow the locks, and waits for them. One that ends meanwhile is left
// out. Errors: Unavailable for one that does not answer.
func (s *supervisor) tell(ctx context.Context, members []string, change *api.LocksChanged) (err error) {
	l := &s.locks
	members = slices.DeleteFunc(members, func(name string) bool { return name == l.self.Name })
	dirs := make([]string, len(members))
	for i, name := range members {
		dirs[i] = s.home.DirOf(name)
	}
	l.followers.Keep(dirs)
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	failed := l.followers.Tell(ctx, dirs, change)
	for i, name := range members {
		if e := failed[dirs[i]]; e != nil {
			err = cmp.Or(s.tellAgain(ctx, name, e, change), err)
		}
	}
	return err
}

// tellAgain is tell for a sandbox that has not followed, because of cause. While its supervisor
// starts, or lets go, it does not listen.
func (s *supervisor) tellAgain(ctx context.Context, name string, cause error, change *api.LocksChanged) error {
	dir := s.home.DirOf(name)
	for {
		ended, failed := s.locks.board.DropEnded(name)
		if ended {
			return nil
		}
		absent := errdefs.Is(cause, errdefs.NotFound) || errdefs.Is(cause, errdefs.Unavailable)
		if failed != nil || !absent || ctx.Err() != nil {
			return errdefs.New(errdefs.Unavailable, "sandbox %s: does not follow the locks: %w", name, errors.Join(cause, failed))
		}
		select {
		case <-ctx.Done():
		case <-time.After(settleInterval):
			if cause = s.locks.followers.Tell(ctx, []string{dir}, change)[dir]; cause == nil {
				return nil
			}
		}
	}
}
