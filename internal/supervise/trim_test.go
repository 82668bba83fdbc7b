package supervise

import (
	"testing"
	"time"
)

func TestTrimmerWaitsUntilNothingWorks(t *testing.T) {
	var tr trimmer
	tr.start(func() bool { return true })
	defer tr.stop()
	tr.timer.Stop() // looks happen when the test says so

	tr.lastCPU = -time.Hour // as if an hour had been worked since
	tr.look()
	if !tr.worked {
		t.Error("memory was given back in the middle of work")
	}
	tr.lastCPU = time.Hour // as if nothing had been worked since
	tr.look()
	if tr.worked {
		t.Error("memory was not given back after work, with a command that waits")
	}
	tr.touch()
	if !tr.worked {
		t.Error("a new command did not count as work")
	}
}
