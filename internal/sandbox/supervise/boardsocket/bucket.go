package boardsocket

import (
	"sync"
	"time"
)

// Bucket bounds how often something happens: so many times at once, and then once each pause.
type Bucket struct {
	most  int
	pause time.Duration

	mu   sync.Mutex
	left int
	last time.Time // until which left counts
}

// NewBucket returns a full bucket.
func NewBucket(most int, pause time.Duration) *Bucket {
	return &Bucket{most: most, pause: pause, left: most}
}

// Take reports whether it may happen now.
func (b *Bucket) Take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == b.most {
		b.last = now
	}
	if n := int(now.Sub(b.last) / b.pause); n > 0 {
		b.left = min(b.most, b.left+n)
		b.last = b.last.Add(time.Duration(n) * b.pause)
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}
