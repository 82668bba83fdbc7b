package errdefs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestKindOf(t *testing.T) {
	denied := errdefs.New(errdefs.Denied, "open %s: %w", "/a", fs.ErrPermission)
	tests := []struct {
		name string
		err  error
		want errdefs.Kind
	}{
		{"an unclassified error is internal", errors.New("x"), errdefs.Internal},
		{"a fault keeps its kind", denied, errdefs.Denied},
		{"a wrapped fault keeps its kind", fmt.Errorf("apply: %w", denied), errdefs.Denied},
		{"the outermost fault wins", errdefs.New(errdefs.Invalid, "rule 1: %w", denied), errdefs.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := errdefs.KindOf(tt.err); got != tt.want {
				t.Errorf("KindOf(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
	if !errors.Is(denied, fs.ErrPermission) {
		t.Error("the cause named with percent-w is not reachable")
	}
	if errdefs.Is(nil, errdefs.Internal) {
		t.Error("Is(nil, Internal) = true, want false")
	}
}
