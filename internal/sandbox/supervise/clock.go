package supervise

import (
	"sync"
	"time"
)

// clock ends grants in time, by the wall clock. Its owner holds mu while it changes them.
type clock struct {
	mu    sync.Mutex
	timer *time.Timer // nil: no grant ends
	over  bool        // the sandbox ends
}

// clockPause is the longest pause between two looks at the clock, which may be set, and goes on
// while the host sleeps.
const clockPause = 30 * time.Second

// setLocked lets look look at the grants when the next one ends, if one does.
func (c *clock) setLocked(end time.Time, ends bool, look func()) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if ends && !c.over {
		c.timer = time.AfterFunc(max(0, min(time.Until(end), clockPause)), look)
	}
}

// stop stops the clock for good.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(time.Time{}, false, nil)
	c.over = true
}

// endGrants takes back what has ended, by drop, or sets the clock for later. What cannot be taken
// back must not go on.
func (s *supervisor) endGrants(c *clock, next func() (time.Time, bool), set func(), drop func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if end, ends := next(); !ends || time.Now().Before(end) {
		set()
		return
	}
	if err := drop(); err != nil {
		s.log.Error("a grant does not end, so the sandbox stops", "err", err)
		s.stop()
	}
}
