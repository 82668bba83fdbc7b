package egress

import "testing"

func TestEndedConnectionsAreReportedTogether(t *testing.T) {
	reported := make(chan []closed, 2)
	table := closingTable{report: func(ended []closed) { reported <- ended }}
	for id := range maxClosings {
		table.note(closed{ID: uint64(id)})
	}
	got := <-reported
	for len(got) < maxClosings { // the timer was first
		got = append(got, <-reported...)
	}
	for i, c := range got {
		if c.ID != uint64(i) {
			t.Fatalf("%d is connection %d", i, c.ID)
		}
	}
	table.note(closed{ID: 7})
	if got := <-reported; len(got) != 1 || got[0].ID != 7 {
		t.Errorf("one alone: %+v", got)
	}
	table.flush()
	if len(reported) > 0 {
		t.Errorf("nothing is reported as %+v", <-reported)
	}
}
