package fault_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/agentfense/agentfense/internal/fault"
)

func TestKindOf(t *testing.T) {
	denied := fault.New(fault.Denied, "open %s: %w", "/a", fs.ErrPermission)
	tests := []struct {
		name string
		err  error
		want fault.Kind
	}{
		{"an unclassified error is internal", errors.New("x"), fault.Internal},
		{"a fault keeps its kind", denied, fault.Denied},
		{"a wrapped fault keeps its kind", fmt.Errorf("apply: %w", denied), fault.Denied},
		{"the outermost fault wins", fault.New(fault.Invalid, "rule 1: %w", denied), fault.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fault.KindOf(tt.err); got != tt.want {
				t.Errorf("KindOf(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
	if !errors.Is(denied, fs.ErrPermission) {
		t.Error("the cause named with percent-w is not reachable")
	}
	if fault.Is(nil, fault.Internal) {
		t.Error("Is(nil, Internal) = true, want false")
	}
}
