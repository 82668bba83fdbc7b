package isolate

import (
	"strings"
	"testing"
)

func TestComplaintsAreBounded(t *testing.T) {
	var passed strings.Builder
	c := Complaints{To: &passed}
	line := []byte(strings.Repeat("x", 1000) + "\n")
	for range 1000 {
		if n, err := c.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if passed.Len() > maxComplaints || len(c.last) > maxTail || len(c.Tail()) > 500 {
		t.Errorf("passed %d, kept %d, tail %d", passed.Len(), len(c.last), len(c.Tail()))
	}
}
