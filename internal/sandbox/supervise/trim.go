package supervise

import (
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
)

// When a supervisor counts as idle. Nobody tells it when a running command
// uses the view; the processor time that it takes itself does.
const (
	idleAfter = 500 * time.Millisecond // without work
	quietCPU  = 10 * time.Millisecond  // what is no work, in that time
	lookAgain = 20 * time.Second       // while a command runs that was idle
)

// Giving memory back takes some ten milliseconds of processor time, with what is
// then fetched again. Many sandboxes that each work a little every second would
// do little else.
const (
	trimPause = 10 * time.Second       // between two times, after little work
	muchCPU   = 100 * time.Millisecond // what is not little
)

// trimmer gives back the memory that an idle supervisor does not need: there
// is one for each sandbox, and most wait, with a command that runs or without.
type trimmer struct {
	mu      sync.Mutex
	timer   *time.Timer // nil before start and after stop
	busy    func() bool
	started bool // gcPercent holds
	worked  bool // since memory was given back
	lastCPU time.Duration

	trimmed    time.Time     // when memory was given back last
	trimmedCPU time.Duration // the processor time used until then
}

// start makes t look from now on; busy reports whether a command runs.
func (t *trimmer) start(busy func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy, t.worked = busy, true
	t.lastCPU = ownCPU()
	t.timer = time.AfterFunc(idleAfter, t.look)
}

func (t *trimmer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// touch says that there was work, until now.
func (t *trimmer) touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.worked = true
	t.lastCPU = ownCPU()
	t.resetLocked(idleAfter)
}

func (t *trimmer) resetLocked(after time.Duration) {
	if t.timer != nil {
		t.timer.Reset(after)
	}
}

// look gives memory back if there was work and none lately.
func (t *trimmer) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.started {
		t.started = true
		debug.SetGCPercent(gcPercent)
	}
	used := ownCPU()
	works := used-t.lastCPU > quietCPU
	t.lastCPU = used
	switch {
	case works:
		t.worked = true
		t.resetLocked(idleAfter)
		return
	case t.worked && t.soonLocked(used) > 0:
		t.resetLocked(t.soonLocked(used))
		return
	case t.worked:
		debug.FreeOSMemory()
		guest.DropText()
		t.worked = false
		t.lastCPU = ownCPU()
		t.trimmed, t.trimmedCPU = time.Now(), t.lastCPU
	}
	if t.busy() {
		t.resetLocked(lookAgain)
	}
}

// soonLocked returns how long it is too soon to give memory back again.
func (t *trimmer) soonLocked(used time.Duration) time.Duration {
	if t.trimmed.IsZero() || used-t.trimmedCPU >= muchCPU {
		return 0
	}
	return trimPause - time.Since(t.trimmed)
}

// ownCPU is the processor time that this process has used; 0 where the kernel
// does not say.
func ownCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
