package fuseconn

import (
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// If two threads wait at the device, the kernel wakes the one that has waited longest, so
// that they take turns. Each request of a client then goes to a thread that slept, on
// another processor, and takes twice the time (25 instead of 13 µs on two processors). So
// only workers wait there. A reader stays a worker while its handler runs. A handler that
// is about to block calls BeginBlocking, and another reader takes over. The watch finds
// handlers that block without that call.

// worker is the right of one reader to take the next request.
type worker struct {
	// turn is odd while a handler runs.
	turn atomic.Uint64
	// replaced is true after another reader has taken over.
	replaced atomic.Bool
}

func (w *worker) busy() bool { return w.turn.Load()&1 == 1 }

const (
	// processorsPerWorker is how many processors share a worker: a thread that does nothing
	// else can serve the clients on three other processors.
	processorsPerWorker = 4
	// maxReaders bounds the handlers that run at once, and so the memory for
	// requests: two buffers of MaxWrite each.
	maxReaders = 64
	// maxWaiting is how many readers wait to become a worker.
	maxWaiting = 4
)

func workerCount() int { return max(1, runtime.GOMAXPROCS(0)/processorsPerWorker) }

// startLocked starts a reader unless maxReaders is reached.
func (c *Conn) startLocked() {
	if c.readers < maxReaders {
		c.readers++
		c.all.Go(c.read)
	}
}

// read answers requests until the mount has ended or enough other readers wait.
func (c *Conn) read() {
	b, err := newBuffers()
	if err != nil {
		c.dropReader(err)
		return
	}
	defer b.free()
	for {
		w := c.becomeWorker(b)
		if w == nil {
			return
		}
		for !w.replaced.Load() {
			n, err := c.next(b)
			if err != nil {
				c.end(err)
				break
			}
			w.turn.Add(1)
			if c.asleep.Load() && c.asleep.CompareAndSwap(true, false) {
				c.wake <- struct{}{}
			}
			c.answer(b, n)
			w.turn.Add(1)
		}
	}
}

// becomeWorker waits until the reader may be a worker. It returns nil if the reader is no
// longer needed.
func (c *Conn) becomeWorker(b *buffers) *worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.ended {
			c.readers--
			return nil
		}
		for i, w := range c.workers {
			if w == nil {
				c.workers[i] = &worker{}
				return c.workers[i]
			}
		}
		if c.waiting >= maxWaiting {
			c.readers--
			return nil
		}
		b.trim()
		c.waiting++
		c.free.Wait()
		c.waiting--
	}
}

// dropReader ends a reader that got no memory for requests. The mount ends with the last
// reader, because no request would be answered.
func (c *Conn) dropReader(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log.Error("fuse: no memory for requests", slog.Any("error", err))
	if c.readers--; c.readers == 0 {
		c.endLocked()
	}
}

// BeginBlocking is called by a handler before it blocks. If no worker waits at the device,
// another reader takes over from a worker whose handler runs.
func (c *Conn) BeginBlocking() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	for _, w := range c.workers {
		if w == nil || !w.busy() {
			return // another worker is free or will be
		}
	}
	c.workers[0].replaced.Store(true)
	// The oldest request moves to the end of the list.
	copy(c.workers, c.workers[1:])
	c.workers[len(c.workers)-1] = nil
	if c.waiting > 0 {
		c.free.Signal()
		return
	}
	c.startLocked()
}

// end is called with the first error of the device. ENODEV and ECONNABORTED mean that the
// mount has ended.
func (c *Conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ECONNABORTED) {
		c.log.Error("fuse: the device cannot be read", slog.Any("error", err))
	}
	c.endLocked()
}

func (c *Conn) endLocked() {
	c.ended = true
	c.free.Broadcast()
	close(c.done)
}

const (
	// stuckAfter is how long the handlers of all workers may run before another
	// reader takes over: two to three times the wait for a slow disk.
	stuckAfter = 2 * time.Millisecond
	// quietTicks is how many times nothing happened before the watch sleeps.
	quietTicks = 5
)

// watch finds handlers that block without BeginBlocking.
func (c *Conn) watch() {
	tick := time.NewTicker(stuckAfter)
	defer tick.Stop()
	seen := make([]uint64, len(c.workers))
	for quiet := 0; ; {
		select {
		case <-tick.C:
		case <-c.done:
			return
		}
		moved, stuck := c.look(seen)
		switch {
		case stuck:
			c.BeginBlocking()
			quiet = 0
		case moved:
			quiet = 0
		default:
			quiet++
		}
		if quiet < quietTicks {
			continue
		}
		tick.Stop()
		if !c.sleep(seen) {
			return
		}
		tick.Reset(stuckAfter)
		quiet = 0
	}
}

// look compares the turns of the workers with those of the last call. moved reports whether
// any has changed, stuck whether all workers are in the same handler as before.
func (c *Conn) look(seen []uint64) (moved, stuck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stuck = true
	for i, w := range c.workers {
		var turn uint64
		if w != nil {
			turn = w.turn.Load()
		}
		stuck = stuck && turn == seen[i] && turn&1 == 1
		moved = moved || turn != seen[i]
		seen[i] = turn
	}
	return moved, stuck
}

// sleep waits for the next request. It returns false if the mount has ended.
func (c *Conn) sleep(seen []uint64) bool {
	c.asleep.Store(true)
	if moved, _ := c.look(seen); moved && c.asleep.CompareAndSwap(true, false) {
		return true // a request came before the watch slept
	}
	select {
	case <-c.wake:
		return true
	case <-c.done:
		return false
	}
}
