package service

import (
	"container/list"
	"context"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// maxAnonymousCalls limits the concurrent calls without credentials: for each of them the server
// may hold a message in memory.
const maxAnonymousCalls = 64

// workers limits the calls without credentials. A call beyond the limit ends the oldest call of the
// peer with the most calls, so that no peer can keep others out with long calls.
type workers struct {
	mu    sync.Mutex
	taken int
	of    map[string]*list.List // by peer: of context.CancelFunc, the oldest first
}

// take counts a call of peer and returns its context, which ends when another call needs its place.
func (s *workers) take(ctx context.Context, peer string) context.Context {
	ctx, end := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= maxAnonymousCalls {
		s.evictLocked(peer)
	}
	if s.of == nil {
		s.of = map[string]*list.List{}
	}
	if s.of[peer] == nil {
		s.of[peer] = list.New()
	}
	call := s.of[peer].PushBack(end)
	s.taken++
	context.AfterFunc(ctx, func() { s.leave(peer, call) })
	return ctx
}

// evictLocked ends the oldest call of the peer with the most calls; of forPeer if no other has
// more.
func (s *workers) evictLocked(forPeer string) {
	most := forPeer
	for peer, calls := range s.of {
		if s.of[most] == nil || calls.Len() > s.of[most].Len() {
			most = peer
		}
	}
	oldest := s.of[most].Front()
	s.removeLocked(most, oldest)
	if end, is := oldest.Value.(context.CancelFunc); is {
		end()
	}
}

func (s *workers) leave(peer string, call *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(peer, call)
}

// removeLocked removes a call, unless it was removed before.
func (s *workers) removeLocked(peer string, call *list.Element) {
	calls := s.of[peer]
	if calls == nil {
		return
	}
	before := calls.Len()
	calls.Remove(call)
	s.taken -= before - calls.Len()
	if calls.Len() == 0 {
		delete(s.of, peer)
	}
}

// underWay counts the concurrent calls or commands of each owner, so that one owner cannot use up
// the server's descriptors and memory.
type underWay struct {
	mu sync.Mutex
	of map[string]int // by owner
}

// ration is the number of concurrent calls or commands of an owner.
type ration struct {
	most     int    // 0: any number
	resource string // in the plural
	key      string // of the configuration; "": it is fixed
}

// begin counts a call until ctx ends. Errors: Exhausted.
func (u *underWay) begin(ctx context.Context, owner string, most int) error {
	leave, err := u.enter(owner, ration{most, "calls", "limits.calls_per_owner"})
	if err == nil {
		context.AfterFunc(ctx, leave)
	}
	return err
}

// enter counts one more until leave is called, once. Errors: Exhausted.
func (u *underWay) enter(owner string, r ration) (leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.most > 0 && u.of[owner] >= r.most {
		advice := "wait until one ends"
		if r.key != "" {
			advice += ", or raise " + r.key
		}
		return nil, errdefs.New(errdefs.Exhausted, "the owner already has %w running: %s", &errdefs.Limit{Most: int64(r.most), Resource: r.resource}, advice)
	}
	if u.of == nil {
		u.of = map[string]int{}
	}
	u.of[owner]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.of[owner]--; u.of[owner] == 0 {
			delete(u.of, owner)
		}
	}, nil
}

// enterExec counts a command for the sandbox's owner until leave is called, unless the operator
// runs it. Errors: Exhausted.
func (s *Service) enterExec(ctx context.Context, sb *record.Sandbox) (leave func(), err error) {
	return s.enterExecOf(ctx, sb.Record().Served.OwnerID)
}

// enterExecOf is enterExec for an owner.
func (s *Service) enterExecOf(ctx context.Context, owner string) (leave func(), err error) {
	if callerOf(ctx).Operator {
		return func() {}, nil
	}
	return s.execs.enter(owner, ration{s.config.Limits.ExecsPerOwner, "execs", "limits.execs_per_owner"})
}
