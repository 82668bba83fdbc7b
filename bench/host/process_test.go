package host

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParentOf(t *testing.T) {
	tests := []struct {
		name, stat string
		want       int
	}{
		{"a plain name", "12 (bash) S 7 12 12 0", 7},
		{"a name with spaces and parentheses", "12 (a) R 1 (b) S 9 12 12 0", 9},
		{"nothing", "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parentOf(tt.stat); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestCPUOf(t *testing.T) {
	got := cpuOf("12 (a) R 1 (b) S 9 12 12 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 99")
	if want := 1270 * time.Millisecond; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := cpuOf("12 (a) R"); got != 0 {
		t.Errorf("of a short line: %v", got)
	}
}

func TestASandboxIsItsSupervisorAndAllThatDescendsFromIt(t *testing.T) {
	const home = "AGENTFENSE_HOME=/x"
	procs := Processes{
		1:  {Parent: 0, Env: "\x00"},
		10: {Parent: 1, Env: "\x00A=b\x00" + home + "\x00"},
		11: {Parent: 10, Env: "\x00"},
		12: {Parent: 11, Env: "\x00"},
		20: {Parent: 1, Env: "\x00" + home + "/other\x00"},
		21: {Parent: 20, Env: "\x00"},
	}
	got := slices.Sorted(maps.Keys(procs.With(procs.ByEnv(home))))
	if diff := cmp.Diff([]int{10, 11, 12}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPSSOf(t *testing.T) {
	got, err := pssOf("00400000-7ffe rollup\nRss:  900 kB\nPss:  512 kB\nPss_Anon: 4 kB\n")
	if err != nil || got != 512<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := pssOf("Rss: 900 kB\n"); err == nil {
		t.Error("a rollup without Pss: no error")
	}
}
