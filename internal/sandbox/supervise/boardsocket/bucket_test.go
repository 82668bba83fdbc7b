package boardsocket

import (
	"testing"
	"time"
)

// TestABucketFillsAgain checks how often something may happen: at once, and after a pause.
func TestABucketFillsAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	b := NewBucket(3, time.Second)
	take := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if got := b.Take(now); got != w {
				t.Errorf("%d at %s: %t, want %t", i, now.UTC().Format("05.0"), got, w)
			}
		}
	}
	take(true, true, true, false)
	now = now.Add(900 * time.Millisecond)
	take(false)
	now = now.Add(100 * time.Millisecond)
	take(true, false)
	now = now.Add(2500 * time.Millisecond)
	take(true, true, false)
	now = now.Add(500 * time.Millisecond)
	take(true, false)
	now = now.Add(time.Hour)
	take(true, true, true, false)
}
