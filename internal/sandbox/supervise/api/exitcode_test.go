package api_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		exit api.Exit
		want int
	}{
		{"its own code", api.Exit{Code: 3}, 3},
		{"a signal", api.Exit{Signal: 15}, 143},
		{"a time-out, by whichever signal", api.Exit{Signal: 9, Reason: api.ReasonTimeout}, 124},
		{"no memory", api.Exit{Code: 1, Reason: api.ReasonOutOfMemory}, 137},
		{"a signal while the sandbox stopped", api.Exit{Signal: 9, Reason: api.ReasonStopped}, 137},
	} {
		if got := tt.exit.ExitCode(); got != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.name, got, tt.want)
		}
	}
	if got := (&api.CommandError{NotExecutable: true}).ExitCode(); got != 126 {
		t.Errorf("a file that cannot be executed: exit code %d, want 126", got)
	}
	if got := (&api.CommandError{}).ExitCode(); got != 127 {
		t.Errorf("a program that is not there: exit code %d, want 127", got)
	}
}
