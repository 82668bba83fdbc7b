package snapshot

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func TestOnlyAFullDiskHasAStepDoneAgain(t *testing.T) {
	h, err := record.OpenHomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	full := record.HostError("snapshots", unix.ENOSPC)
	other := errdefs.New(errdefs.Precondition, "damaged")
	for _, tt := range []struct {
		name string
		errs []error // of one call after the other
		want error
	}{
		{"no error", []error{nil}, nil},
		{"another error", []error{other}, other},
		{"no room at first", []error{full, nil}, nil},
		{"no room", []error{full, full}, full},
	} {
		calls := 0
		err := withRoom(h, func() error { calls++; return tt.errs[calls-1] })
		if !errors.Is(err, tt.want) || calls != len(tt.errs) {
			t.Errorf("%s: %v after %d calls, want %v after %d", tt.name, err, calls, tt.want, len(tt.errs))
		}
	}
}
