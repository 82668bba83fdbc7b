package supervise

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// lockFollower is a supervisor of one sandbox. The test process is the supervisor of another one,
// and tells its locks. A lockFollower has no view, so these locks are advisory.
type lockFollower struct {
	*supervisor
	other  *record.Sandbox
	holder board.Holder
}

func newLockFollower(t *testing.T) *lockFollower {
	t.Helper()
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	source, err := home.ResolveSource(t.TempDir())
	must(t, err)
	create := func(name string) *record.Sandbox {
		sb, err := home.Create(record.Record{
			Source: source, Name: name, Workspace: "/workspace", Runtime: record.RuntimeBwrap, Net: record.NetNone,
			Rules: []policy.Rule{{Pattern: "**", Permission: policy.Write}},
		})
		must(t, err)
		return sb
	}
	f := &lockFollower{other: create("other")}
	f.supervisor = &supervisor{home: home, log: slog.New(slog.DiscardHandler)}
	l := &f.locks
	l.board = board.Open(home, &create("self").Stored)
	l.self = board.Holder{Name: "self", PID: os.Getpid()}
	l.watched = map[board.Holder]*holderWatch{}
	l.policies = map[board.Holder]*holderPolicy{}
	f.holder = board.Holder{ID: f.other.ID(), Name: "other", PID: os.Getpid()}
	t.Cleanup(l.stop)
	lock, err := f.other.TryLock(record.PurposeSupervise)
	must(t, err)
	t.Cleanup(lock.Release)
	return f
}

// change has the other sandbox lock a path.
func (f *lockFollower) change(t *testing.T, p vpath.Path) *api.LocksChanged {
	t.Helper()
	u, err := f.locks.board.Update(nil, func(table *board.Table) error {
		_, _, err := table.Acquire(f.holder, board.Request{Paths: []vpath.Path{p}, Advisory: true}, time.Now())
		return err
	})
	must(t, err)
	return &api.LocksChanged{Change: *u.Change, Rules: 1}
}

// TestAChangeIsFollowedInOrder checks that a change is taken as it is told only on what was before,
// and that the table is read otherwise.
func TestAChangeIsFollowedInOrder(t *testing.T) {
	f := newLockFollower(t)
	has := func(want ...string) {
		t.Helper()
		got := f.heldByLocked(f.holder)
		if len(got) != len(want) {
			t.Errorf("locks of %q, want %q", got, want)
		}
	}
	follow := func(c *api.LocksChanged, applied bool) {
		t.Helper()
		if f.applyChange(c) != applied {
			t.Errorf("the change %d to %d is taken: %t, want %t", c.From, c.To, !applied, applied)
		}
	}
	first := f.change(t, "/a")
	follow(first, true)
	has("a")
	second, third := f.change(t, "/b"), f.change(t, "/c")
	follow(third, false)
	follow(first, false)
	has("a")
	must(t, f.followChange(t.Context(), third))
	has("a", "b", "c")
	follow(second, false) // what was read had it
	f.locks.ticket = 7
	fourth := f.change(t, "/d")
	follow(fourth, false)
	f.locks.ticket = 0
	follow(fourth, true)
	has("a", "b", "c", "d")
	f.change(t, "/e")
	must(t, f.followChange(t.Context(), nil))
	has("a", "b", "c", "d", "e")
}

// TestASandboxThatStartsOrStopsIsWaitedFor checks that a member without a socket makes no change
// fail if it soon has one, or leaves. One that runs on has to follow.
func TestASandboxThatStartsOrStopsIsWaitedFor(t *testing.T) {
	f := newLockFollower(t)
	soon := 3 * settleInterval
	tell := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return f.tell(ctx, []string{"other"}, f.change(t, "/x"))
	}
	must(t, f.locks.board.Join(f.holder))
	if err := tell(soon); !errdefs.Is(err, errdefs.Unavailable) {
		t.Errorf("a sandbox that does not listen: %v, want Unavailable", err)
	}

	left := time.AfterFunc(soon, func() { _, _ = f.locks.board.Leave(f.holder) })
	defer left.Stop()
	if err := tell(lockPatience); err != nil {
		t.Errorf("a sandbox that leaves: %v", err)
	}

	must(t, f.locks.board.Join(f.holder))
	followed := make(chan *api.LocksChanged, 1)
	starts := time.AfterFunc(soon, func() {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(f.other.Dir(), api.ControlSocket)})
		if err != nil {
			return
		}
		defer l.Close()
		uc, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer uc.Close()
		c := api.Conn{UnixConn: uc}
		var r api.Request
		if _, err := c.Receive(&r); err == nil {
			_ = api.ServeLocks(c, func(change *api.LocksChanged) error { followed <- change; return nil })
		}
	})
	defer starts.Stop()
	if err := tell(lockPatience); err != nil {
		t.Fatalf("a sandbox that starts: %v", err)
	}
	if change := <-followed; change == nil || len(change.Begun) != 1 {
		t.Errorf("a starting sandbox got the change %+v", change)
	}
	f.locks.followers.Keep(nil)
}

// TestASandboxThatStopsDoesNotSayThatItFollows checks that no change is answered which the sandbox
// no longer enforces: its commands may not have ended.
func TestASandboxThatStopsDoesNotSayThatItFollows(t *testing.T) {
	f := newLockFollower(t)
	f.stopping, f.holds, f.stays = make(chan struct{}), 1, true
	client, server := connPair(t)
	f.locks.mu.Lock() // the change waits
	holds := func(want int) {
		for is := -1; is != want; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			is = f.holds
			f.mu.Unlock()
		}
	}
	go f.handleFollow(t.Context(), server)
	holds(0)                                // a connection is no reason to stay
	_, err := client.Write(make([]byte, 4)) // an empty message: the table is to be read
	must(t, err)
	holds(1) // a change is
	f.stop()
	f.locks.over = true
	f.locks.mu.Unlock()
	must(t, client.SetDeadline(time.Now().Add(time.Minute)))
	if n, err := client.Read(make([]byte, 4)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes are answered, %v, want EOF", n, err)
	}
}

// connPair returns the ends of a connection.
func connPair(t *testing.T) (a, b api.Conn) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	var conns [2]api.Conn
	for i, fd := range ends {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		must(t, err)
		t.Cleanup(func() { c.Close() })
		conns[i] = api.Conn{UnixConn: c.(*net.UnixConn)}
	}
	return conns[0], conns[1]
}

// TestTheRulesOfAHolderAreReadAgain checks when a policy that bounds locks is taken from its record
// again: after a look at the table, and when the holder tells of other rules.
func TestTheRulesOfAHolderAreReadAgain(t *testing.T) {
	f := newLockFollower(t)
	writes := func(want bool) {
		t.Helper()
		p := f.holderLocked(f.holder)
		if p == nil {
			t.Fatal("the policy is not known")
		}
		if got := p.Decide("/x").Permission == policy.Write; got != want {
			t.Errorf("the holder may write: %t, want %t", got, want)
		}
	}
	store := func(permission policy.Permission) {
		t.Helper()
		must(t, f.other.Update(func(r *record.Record) error {
			r.Rules = []policy.Rule{{Pattern: "**", Permission: permission}}
			return nil
		}))
	}
	f.locks.rulesAreLocked(f.holder, 1)
	writes(true)
	store(policy.Read)
	f.locks.rulesAreLocked(f.holder, 1)
	writes(true) // it has told of no change yet
	f.locks.rulesAreLocked(f.holder, 2)
	writes(false)
	store(policy.Write)
	f.lookLocked(&board.Table{})
	writes(true)
	store(policy.Read)
	f.locks.rulesAreLocked(f.holder, 2) // after a look no version is known
	writes(false)
	must(t, os.Remove(filepath.Join(f.other.Dir(), "sandbox.json")))
	f.locks.rulesAreLocked(f.holder, 3)
	if f.holderLocked(f.holder) != nil {
		t.Error("rules that cannot be read are taken for the last ones")
	}
}

// TestAHolderThatIsWatchedIsNotLookedUp checks that only the process that the sandbox's lock names
// counts as one that goes on.
func TestAHolderThatIsWatchedIsNotLookedUp(t *testing.T) {
	f := newLockFollower(t)
	stranger := board.Holder{ID: f.holder.ID, Name: f.holder.Name, PID: os.Getppid()}
	f.locks.mu.Lock()
	f.watchHoldersLocked(map[board.Holder]bool{f.holder: true, stranger: true})
	f.locks.mu.Unlock()
	runs := func(h board.Holder) bool {
		f.locks.mu.Lock()
		defer f.locks.mu.Unlock()
		return f.runsLocked(h)
	}
	for !runs(f.holder) {
		time.Sleep(time.Millisecond)
	}
	f.locks.mu.Lock()
	f.watchHoldersLocked(nil)
	kept := len(f.locks.watched)
	f.locks.watched[f.holder].ended = true
	f.locks.mu.Unlock()
	if kept != 2 {
		t.Errorf("%d holders without locks are watched, want both", kept)
	}
	if runs(f.holder) || runs(stranger) || !runs(f.locks.self) {
		t.Error("a process that has ended, or one of another run, counts as one that goes on")
	}
	f.locks.mu.Lock()
	f.watchHoldersLocked(nil)
	if f.locks.watched[f.holder] != nil {
		t.Error("a holder that has ended is watched")
	}
	f.locks.mu.Unlock()
}

// TestASandboxOfAServerRefusesOthers checks that a server's sandbox refuses who asks beside the
// server, whatever the request is.
func TestASandboxOfAServerRefusesOthers(t *testing.T) {
	for _, served := range []bool{true, false} {
		s := &supervisor{log: slog.New(slog.DiscardHandler)}
		if served {
			s.record.Served = &record.Served{}
		}
		client, server := connPair(t)
		must(t, client.Send(api.Request{Op: "unknown", Local: true}))
		s.handle(t.Context(), server)
		var answer api.Reply
		_, err := client.Receive(&answer)
		must(t, err)
		if got := errdefs.Is(answer.Error.Err(), errdefs.Precondition); got != served {
			t.Errorf("of a server: %t: answer %v", served, answer.Error.Err())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
