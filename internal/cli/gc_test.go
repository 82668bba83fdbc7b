package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// A command with a large heap is to need no more memory than with the runtime's default.
func TestGarbageIsCollectedAsUsualAfterTheFirstTime(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(laterGC))
	delayGC()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		now := debug.SetGCPercent(firstGC)
		if now == laterGC {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d after a collection, want %d", now, laterGC)
		}
	}
}
