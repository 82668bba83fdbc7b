package denial

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Refusals beyond a bound count as one, and none is lost.
func TestManyKindsOfRefusalsCountAsOne(t *testing.T) {
	got := map[string]int{}
	table := Table{MaxKinds: 3, Report: func(d Denied) { got[d.Host] += d.Count }}
	for i := range 1000 {
		table.Note(Denied{Host: fmt.Sprint(i), Port: 1, Count: 1})
	}
	table.Stop()
	table.Flush()
	if len(got) != 4 || got[Others] != 997 || got["0"] != 1 {
		t.Errorf("got %v", got)
	}
}

// A supervisor that takes no reports must not make them pile up.
func TestRefusalsAreReportedByOneAtATime(t *testing.T) {
	reporting, released := make(chan string), make(chan struct{})
	table := Table{Report: func(d Denied) {
		reporting <- d.Host
		<-released
	}}
	timer := func() *time.Timer {
		table.mu.Lock()
		defer table.mu.Unlock()
		return table.timer
	}
	table.Note(Denied{Host: "a", Count: 1})
	first := timer()
	<-reporting
	table.Note(Denied{Host: "b", Count: 1})
	if timer() != first {
		t.Error("another timer runs although the first report is not taken")
	}
	close(released)
	if host := <-reporting; host != "b" {
		t.Errorf("reported %s, want b", host)
	}
}
