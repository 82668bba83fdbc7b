package local

import (
	"errors"
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// A supervisor that starts while a sandbox is removed by force is stopped, too.
func TestRemoveStoppedEndsASupervisorThatCameMeanwhile(t *testing.T) {
	held := func(o record.Owner) error {
		return errdefs.New(errdefs.Precondition, "%w", &record.HeldError{Name: "a", Owner: o})
	}
	supervisor := held(record.Owner{PID: 7, Purpose: record.PurposeSupervise})
	apply := held(record.Owner{PID: 7, Purpose: record.PurposeApply})
	other := errors.New("the disk broke")
	for _, tc := range []struct {
		name    string
		answers []error // of remove, one after the other
		want    error
	}{
		{"nobody came", []error{nil}, nil},
		{"a supervisor came", []error{supervisor, nil}, nil},
		{"one came that has not said its name", []error{held(record.Owner{}), supervisor, nil}, nil},
		{"an apply has it", []error{apply}, apply},
		{"another error", []error{other}, other},
		{"they never end", slices.Repeat([]error{supervisor}, removalTries), supervisor},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stops, removals := 0, 0
			err := removeStopped(func() error { stops++; return nil }, func() error {
				removals++
				return tc.answers[removals-1]
			})
			if !errors.Is(err, tc.want) || stops != removals || removals != len(tc.answers) {
				t.Errorf("%v after %d stops and %d removals, want %v after %d", err, stops, removals, tc.want, len(tc.answers))
			}
		})
	}
	stuck := errors.New("it does not stop")
	if err := removeStopped(func() error { return stuck }, func() error { t.Error("removed"); return nil }); !errors.Is(err, stuck) {
		t.Errorf("a stop that failed: %v", err)
	}
}
