package fuseconn

import (
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Two threads that wait at the device take turns, as the kernel wakes whoever
// waits longest: each request of a client then meets a thread that has slept,
// on another processor, and is answered in twice the time (25 instead of 13 µs
// on two processors). So only who has a seat waits there, and keeps it while
// the handler runs. A handler that waits for something gives it up, by StandIn;
// where that was not foreseen, the watch takes it away.

// seat is the right to take the next request.
type seat struct {
	// turn is odd while a handler runs.
	turn atomic.Uint64
	// taken says that somebody else sits there now.
	taken atomic.Bool
}

func (s *seat) busy() bool { return s.turn.Load()&1 == 1 }

const (
	// processorsPerSeat is how many processors share a seat: one thread that
	// does nothing else answers for the clients on three others.
	processorsPerSeat = 4
	// maxReaders bounds the handlers that run at once, and so the memory for
	// requests: two buffers of MaxWrite each.
	maxReaders = 64
	// maxWaiting is how many readers without a seat are kept.
	maxWaiting = 4
)

func seatCount() int { return max(1, runtime.GOMAXPROCS(0)/processorsPerSeat) }

// startLocked starts a reader if there may be one more.
func (c *Conn) startLocked() {
	if c.readers < maxReaders {
		c.readers++
		c.all.Go(c.read)
	}
}

// read takes requests and answers them until the mount has ended or there are
// enough others.
func (c *Conn) read() {
	b, err := newBuffers()
	if err != nil {
		c.starve(err)
		return
	}
	defer b.free()
	for {
		s := c.sit(b)
		if s == nil {
			return
		}
		for !s.taken.Load() {
			n, err := c.next(b)
			if err != nil {
				c.end(err)
				break
			}
			s.turn.Add(1)
			if c.asleep.Load() && c.asleep.CompareAndSwap(true, false) {
				c.wake <- struct{}{}
			}
			c.answer(b, n)
			s.turn.Add(1)
		}
	}
}

// sit returns a seat; nil says that the reader is not needed any more.
func (c *Conn) sit(b *buffers) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.ended {
			c.readers--
			return nil
		}
		for i, s := range c.seats {
			if s == nil {
				c.seats[i] = &seat{}
				return c.seats[i]
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

// starve ends a reader that got no memory for requests. Without any reader
// nobody would ever be answered.
func (c *Conn) starve(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log.Error("fuse: no memory for requests", slog.Any("error", err))
	if c.readers--; c.readers == 0 {
		c.endLocked()
	}
}

// StandIn says that a handler is about to wait: if no other reader is at the
// device, one takes the seat of a reader whose handler runs.
func (c *Conn) StandIn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	for _, s := range c.seats {
		if s == nil || !s.busy() {
			return // somebody is there or on the way
		}
	}
	c.seats[0].taken.Store(true)
	// The one that has waited longest for an answer is at the end.
	copy(c.seats, c.seats[1:])
	c.seats[len(c.seats)-1] = nil
	if c.waiting > 0 {
		c.free.Signal()
		return
	}
	c.startLocked()
}

// end is called with the first error of the device. ENODEV says that the mount
// is gone, as does ECONNABORTED.
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
	// stuckAfter is how long a handler may keep the only seats: two to three
	// times the wait for a slow disk.
	stuckAfter = 2 * time.Millisecond
	// quietTicks is how many times nothing happened before the watch sleeps.
	quietTicks = 5
)

// watch finds handlers that wait without having said so.
func (c *Conn) watch() {
	tick := time.NewTicker(stuckAfter)
	defer tick.Stop()
	seen := make([]uint64, len(c.seats))
	for quiet := 0; ; {
		select {
		case <-tick.C:
		case <-c.done:
			return
		}
		moved, stuck := c.look(seen)
		switch {
		case stuck:
			c.StandIn()
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

// look compares the seats with what was seen of them the last time: whether
// anything moved, and whether all are stuck.
func (c *Conn) look(seen []uint64) (moved, stuck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stuck = true
	for i, s := range c.seats {
		var turn uint64
		if s != nil {
			turn = s.turn.Load()
		}
		stuck = stuck && turn == seen[i] && turn&1 == 1
		moved = moved || turn != seen[i]
		seen[i] = turn
	}
	return moved, stuck
}

// sleep waits for the next request; false says that the mount has ended.
func (c *Conn) sleep(seen []uint64) bool {
	c.asleep.Store(true)
	if moved, _ := c.look(seen); moved && c.asleep.CompareAndSwap(true, false) {
		return true // a request that did not see the watch asleep
	}
	select {
	case <-c.wake:
		return true
	case <-c.done:
		return false
	}
}
