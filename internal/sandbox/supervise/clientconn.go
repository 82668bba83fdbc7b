package supervise

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// clientConn is the client of one command. It is listened to before the command
// runs: what it says in that time is kept, and leaving ends the start.
type clientConn struct {
	stays  bool            // its leaving does not end the start
	giveUp func()          // ends the start
	ready  chan struct{}   // closed by connect; nil for a command that is told signals alone
	over   <-chan struct{} // closed when there will be no command

	mu      sync.Mutex
	command signals // nil until connect
	pending []unix.Signal
	left    bool
}

// signals is what a caller tells its command.
type signals interface {
	signal(sig unix.Signal)
	abandon()
}

// listen hears the client until it leaves.
func (k *clientConn) listen(c api.Conn) {
	for {
		var r api.Request
		files, err := c.Receive(&r)
		api.CloseAll(files...)
		if err != nil {
			k.leave()
			return
		}
		if r.Op == api.OpSignal {
			k.signal(unix.Signal(r.Signal))
			continue
		}
		k.tell(r)
	}
}

// connect tells command what the client has said so far and says from now on.
func (k *clientConn) connect(command signals) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.command = command
	for _, sig := range k.pending {
		command.signal(sig)
	}
	k.pending = nil
	if k.left {
		command.abandon()
	}
	if k.ready != nil {
		close(k.ready)
	}
}

// tell passes on what only a detached command can be told; it waits for the command.
func (k *clientConn) tell(r api.Request) {
	if k.ready == nil {
		return
	}
	select {
	case <-k.ready:
		if a, is := k.command.(*attachment); is { // connect does not change it again
			a.reported(r)
		}
	case <-k.over:
	}
}

// signal passes sig on or keeps it; one that is kept already is not kept
// twice, as with the kernel's pending signals.
func (k *clientConn) signal(sig unix.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.command != nil:
		k.command.signal(sig)
	case sig > 0 && sig <= 64 && !slices.Contains(k.pending, sig):
		k.pending = append(k.pending, sig)
	}
}

func (k *clientConn) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.command != nil:
		k.command.abandon()
	case k.stays:
		k.left = true
	default:
		k.left = true
		k.giveUp()
	}
}
