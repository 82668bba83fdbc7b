package api

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
)

// follower stands for a supervisor that follows the locks of others.
type follower struct {
	dir      string
	listener *net.UnixListener
	dials    atomic.Int32
	conns    chan Conn
	answer   func() (bool, error) // false: none
}

func newFollower(t *testing.T, answer func() (bool, error)) *follower {
	t.Helper()
	f := &follower{dir: t.TempDir(), conns: make(chan Conn, 100), answer: answer}
	var err error
	if f.listener, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(f.dir, ControlSocket)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.listener.Close() })
	go func() {
		for {
			uc, err := f.listener.AcceptUnix()
			if err != nil {
				return
			}
			f.dials.Add(1)
			c := Conn{uc}
			f.conns <- c
			go f.serve(c)
		}
	}()
	return f
}

func (f *follower) serve(c Conn) {
	defer c.Close()
	var r Request
	if _, err := c.Receive(&r); err != nil || r.Op != OpLocks {
		return
	}
	for {
		if _, err := messages.ReceiveText(c); err != nil {
			return
		}
		if answers, refusal := f.answer(); answers && sendFollowed(c, refusal) != nil {
			return
		}
	}
}

func follows() (bool, error) { return true, nil }

func TestFollowersKeepTheirConnections(t *testing.T) {
	one, other := newFollower(t, follows), newFollower(t, follows)
	var all Followers
	for range 3 {
		if failed := all.Tell(t.Context(), []string{one.dir, other.dir}, nil); len(failed) > 0 {
			t.Errorf("Tell = %v", failed)
		}
	}
	if one.dials.Load() != 1 || other.dials.Load() != 1 {
		t.Errorf("%d and %d connections, want 1 each", one.dials.Load(), other.dials.Load())
	}
	all.Keep([]string{other.dir})
	if failed := all.Tell(t.Context(), []string{one.dir, other.dir}, nil); len(failed) > 0 {
		t.Errorf("Tell = %v", failed)
	}
	if one.dials.Load() != 2 || other.dials.Load() != 1 {
		t.Errorf("%d and %d connections, want 2 and 1", one.dials.Load(), other.dials.Load())
	}
}

func TestAFollowerIsDialedAgainAfterItsConnectionHasEnded(t *testing.T) {
	var told atomic.Int32
	f := newFollower(t, func() (bool, error) { told.Add(1); return follows() })
	var all Followers
	for i := range int32(3) {
		if failed := all.Tell(t.Context(), []string{f.dir}, nil); len(failed) > 0 {
			t.Errorf("Tell = %v", failed)
		}
		if told.Load() != i+1 {
			t.Errorf("told %d times, want %d", told.Load(), i+1)
		}
		c := <-f.conns
		c.Close()
	}
}

// TestAFollowerIsAskedAnewIfItsConnectionEndsInsteadOfAnAnswer: so it is when a run has just ended
// and another one has begun.
func TestAFollowerIsAskedAnewIfItsConnectionEndsInsteadOfAnAnswer(t *testing.T) {
	var told atomic.Int32
	ends := make(chan Conn, 1)
	f := newFollower(t, func() (bool, error) {
		if told.Add(1) == 2 {
			c := <-ends
			c.Close()
			return false, nil
		}
		return follows()
	})
	var all Followers
	for i := range 2 {
		if failed := all.Tell(t.Context(), []string{f.dir}, nil); len(failed) > 0 {
			t.Errorf("Tell = %v", failed)
		}
		if i == 0 {
			ends <- <-f.conns
		}
	}
	if told.Load() != 3 || f.dials.Load() != 2 {
		t.Errorf("told %d times over %d connections, want 3 and 2", told.Load(), f.dials.Load())
	}
}

func TestAFollowerThatHasEndedIsNotFound(t *testing.T) {
	f := newFollower(t, follows)
	var all Followers
	all.Tell(t.Context(), []string{f.dir}, nil)
	f.listener.Close()
	c := <-f.conns
	c.Close()
	if err := all.Tell(t.Context(), []string{f.dir}, nil)[f.dir]; !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Tell = %v, want NotFound", err)
	}
}

func TestTellNamesWhoDoesNotFollow(t *testing.T) {
	var silent atomic.Bool
	fine := newFollower(t, follows)
	hangs := newFollower(t, func() (bool, error) { return !silent.Load(), nil })
	refuses := newFollower(t, func() (bool, error) {
		return true, errdefs.New(errdefs.Denied, "no")
	})
	dirs := []string{hangs.dir, refuses.dir, fine.dir}
	var all Followers
	if failed := all.Tell(t.Context(), dirs, nil); len(failed) != 1 || !errdefs.Is(failed[refuses.dir], errdefs.Denied) {
		t.Errorf("Tell = %v, want Denied of one", failed)
	}
	silent.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	failed := all.Tell(ctx, dirs, nil)
	if len(failed) != 2 || !IsSilent(failed[hangs.dir]) {
		t.Errorf("Tell = %v, want a silent one and one that refuses", failed)
	}
	silent.Store(false)
	if failed := all.Tell(t.Context(), dirs, nil); len(failed) != 1 {
		t.Errorf("Tell = %v, want one that refuses", failed)
	}
	if hangs.dials.Load() != 2 {
		t.Errorf("%d connections, want another one after the silence", hangs.dials.Load())
	}
}

func TestTellEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := newFollower(t, func() (bool, error) {
		cancel()
		return false, nil
	})
	var all Followers
	if err := all.Tell(ctx, []string{f.dir}, nil)[f.dir]; !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("Tell = %v, want Canceled", err)
	}
}

// TestALargeChangeIsNotSent checks that a change which would not fit the buffer of a socket does
// not keep the sender waiting for a supervisor that does not read: the others are to read the
// table.
func TestALargeChangeIsNotSent(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, ControlSocket)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	change := &LocksChanged{Change: board.Change{Ended: []string{strings.Repeat("x", 1<<20)}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	told := make(chan map[string]error, 1)
	go func() {
		var all Followers
		told <- all.Tell(ctx, []string{dir}, change)
	}()
	select {
	case failed := <-told:
		if failed[dir] == nil {
			t.Error("a supervisor that does not answer has followed")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Tell waits for a supervisor that does not read")
	}
	if err := l.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	uc, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer uc.Close()
	c := Conn{uc}
	var r Request
	if _, err := c.Receive(&r); err != nil || r.Op != OpLocks {
		t.Fatalf("request %q, %v", r.Op, err)
	}
	if text, err := messages.ReceiveText(c); err != nil || len(text) != 0 {
		t.Errorf("%d bytes are sent, %v, want none", len(text), err)
	}
}
