package fusefs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// TestCountedDenialsAreReportedWhenDue also sleeps for ten years before and after: with a clock
// that goes on while there is nothing to report, the test would not end.
func TestCountedDenialsAreReportedWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const years = 10 * 365 * 24 * time.Hour
		told := make(chan Denial, 10)
		fs := &FS{o: Options{OnDenial: func(d Denial) { told <- d }}, ended: make(chan struct{})}
		fs.denials.init()
		go fs.runDenials()
		time.Sleep(years)
		for range 2 { // the second time after a rest
			for range 3 {
				fs.deny(denied{path: "/a", operation: "open", d: policy.Decision{}, caller: &fuse.Caller{}})
			}
			if first := <-told; first.Count != 1 {
				t.Errorf("at once: %+v, want one", first)
			}
			start := time.Now()
			if again := <-told; again.Count != 2 {
				t.Errorf("later: %+v, want two", again)
			}
			if took := time.Since(start); took < repeatTime || took > repeatTime+2*lookPause {
				t.Errorf("counted for %s, want %s", took, repeatTime)
			}
			time.Sleep(years)
		}
		close(fs.ended)
	})
}
