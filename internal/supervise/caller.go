package supervise

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// caller is the client of one command. It is listened to before the command
// runs: what it says in that time is kept, and leaving ends the start.
type caller struct {
	stays  bool   // its leaving means nothing
	giveUp func() // ends the start

	mu      sync.Mutex
	command heard // nil until connect
	pending []unix.Signal
	left    bool
}

// heard is what a caller tells its command.
type heard interface {
	signal(sig unix.Signal)
	abandon()
}

// listen hears the client until it leaves.
func (k *caller) listen(c conn) {
	for {
		var r request
		files, err := c.receive(&r)
		closeAll(files...)
		if err != nil {
			k.leave()
			return
		}
		if r.Op == opSignal {
			k.signal(unix.Signal(r.Signal))
		}
	}
}

// connect tells command what the client has said so far and says from now on.
func (k *caller) connect(command heard) {
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
}

// signal passes sig on or keeps it; one that is kept already is not kept
// twice, as with the kernel's pending signals.
func (k *caller) signal(sig unix.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.command != nil:
		k.command.signal(sig)
	case sig > 0 && sig <= 64 && !slices.Contains(k.pending, sig):
		k.pending = append(k.pending, sig)
	}
}

func (k *caller) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stays:
	case k.command != nil:
		k.command.abandon()
	default:
		k.left = true
		k.giveUp()
	}
}
