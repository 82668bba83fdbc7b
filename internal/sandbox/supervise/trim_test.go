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
	used := ownCPU()
	tr.lastCPU = -time.Hour
	tr.touch()
	if tr.lastCPU < used {
		t.Error("what a command used until it ended counts as work after its end")
	}
}

func TestLittleWorkDoesNotGiveMemoryBackAllTheTime(t *testing.T) {
	var tr trimmer
	tr.start(func() bool { return false })
	defer tr.stop()
	look := func(used time.Duration) {
		tr.timer.Stop()
		tr.lastCPU = time.Hour // nothing works just now
		tr.trimmedCPU = ownCPU() - used
		tr.look()
	}
	look(0)
	if tr.worked {
		t.Fatal("memory was not given back after the first work")
	}
	tr.touch()
	look(0)
	if !tr.worked {
		t.Error("memory was given back again after little work")
	}
	look(muchCPU)
	if tr.worked {
		t.Error("memory was not given back after much work")
	}
	tr.touch()
	tr.trimmed = time.Now().Add(-trimPause)
	look(0)
	if tr.worked {
		t.Error("memory was not given back after little work, a while later")
	}
}
