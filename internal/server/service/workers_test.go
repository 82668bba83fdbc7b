package service

import (
	"context"
	"runtime"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestTheBusiestPeerGivesWay(t *testing.T) {
	var s workers
	busy := make([]context.Context, 2*maxAnonymousCalls)
	ctx, leave := context.WithCancel(t.Context())
	quiet := s.take(ctx, "quiet")
	for i := range busy {
		busy[i] = s.take(t.Context(), "busy")
	}
	other := s.take(t.Context(), "other")
	if quiet.Err() != nil || other.Err() != nil {
		t.Errorf("the calls of others ended: %v, %v", quiet.Err(), other.Err())
	}
	for i, c := range busy {
		if old := i < len(busy)-(maxAnonymousCalls-2); old != (c.Err() != nil) {
			t.Errorf("call %d: %v", i, c.Err())
		}
	}
	leave()
	for s.free() == 0 { // what follows the end of a context has a goroutine of its own
		runtime.Gosched()
	}
	if s.take(t.Context(), "other"); busy[len(busy)-(maxAnonymousCalls-2)].Err() != nil {
		t.Error("a call ended although there was a seat")
	}
}

func (s *workers) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maxAnonymousCalls - s.taken
}

func TestCallsOfAnOwnerAreBounded(t *testing.T) {
	var u underWay
	ctx, end := context.WithCancel(t.Context())
	for range 2 {
		if err := u.begin(ctx, "me", 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.begin(ctx, "me", 2); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("one more: %v", err)
	}
	if err := u.begin(ctx, "other", 2); err != nil {
		t.Error(err)
	}
	end()
	for u.begin(t.Context(), "me", 1) != nil { // as above
		runtime.Gosched()
	}
}
