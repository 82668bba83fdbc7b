package api

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
)

// TestAChangeArrivesAsItWasTold checks what a follower gets of a change, for the first time and
// over the connection that was kept.
func TestAChangeArrivesAsItWasTold(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, ControlSocket)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan *LocksChanged, 10)
	refusal := error(nil)
	go func() {
		uc, err := l.AcceptUnix()
		if err != nil {
			return
		}
		c := Conn{uc}
		defer c.Close()
		var r Request
		if _, err := c.Receive(&r); err == nil && r.Op == OpLocks {
			_ = ServeLocks(c, func(change *LocksChanged) error {
				got <- change
				return refusal
			})
		}
	}()
	var all Followers
	lock := board.Lock{Holder: board.Holder{ID: "sb_0000000000000000", Name: "box", PID: 7}, Path: "a", Since: time.Unix(1, 0).UTC(), Ticket: 2}
	for _, want := range []*LocksChanged{
		{Change: board.Change{From: 1, To: 2, Ended: []string{"b"}, Begun: []board.Lock{lock}}, Rules: 3}, nil, {},
	} {
		if failed := all.Tell(t.Context(), []string{dir}, want); len(failed) > 0 {
			t.Fatalf("Tell = %v", failed)
		}
		if diff := cmp.Diff(want, <-got); diff != "" {
			t.Errorf("the change (-told +got):\n%s", diff)
		}
	}
	refusal = errdefs.New(errdefs.Denied, "no")
	if err := all.Tell(t.Context(), []string{dir}, nil)[dir]; !errdefs.Is(err, errdefs.Denied) {
		t.Errorf("Tell = %v, want Denied", err)
	}
	if _, err := parseChange([]byte{0x80}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("half a number: %v, want Invalid", err)
	}
}
