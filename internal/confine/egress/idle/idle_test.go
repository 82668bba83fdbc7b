package idle

import (
	"fmt"
	"os"
	"testing"
)

// fileBacked returns how many pages of files this process has in memory (proc_pid_statm(5)).
func fileBacked(t *testing.T) (pages int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident, &pages); err != nil {
		t.Fatal(err)
	}
	return pages
}

func TestTheProgramsPagesAreGivenBack(t *testing.T) {
	before := fileBacked(t)
	dropText()
	if after := fileBacked(t); after >= before {
		t.Errorf("%d pages before, %d after", before, after)
	}
}

func TestMemoryIsGivenBackWhenNothingIsServed(t *testing.T) {
	var idle Trimmer
	first, second := idle.Begin(), idle.Begin()
	first()
	if idle.timer != nil {
		t.Error("one is served, and the timer runs")
	}
	second()
	if idle.timer == nil || !idle.timer.Stop() {
		t.Error("nothing is served, and the timer does not run")
	}
	idle.timer.Reset(idleAfter)
	third := idle.Begin()
	if idle.timer.Stop() {
		t.Error("one is served again, and the timer runs")
	}
	third()
	idle.timer.Stop()
}
