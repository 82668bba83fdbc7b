package parallel_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/parallel"
)

func TestEachCallsForEachNumberOnce(t *testing.T) {
	for _, n := range []int{0, 1, 16, 17, 1000} {
		calls := make([]atomic.Int32, n)
		if err := parallel.Each(n, func(i int) error { calls[i].Add(1); return nil }); err != nil {
			t.Errorf("Each(%d) = %v", n, err)
		}
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("Each(%d) calls %d times for %d", n, got, i)
			}
		}
	}
}

func TestEachReturnsTheErrorOfTheLowestNumber(t *testing.T) {
	for _, n := range []int{16, 1000} {
		err := parallel.Each(n, func(i int) error {
			if i < 3 {
				return nil
			}
			return fmt.Errorf("number %d", i)
		})
		if err == nil || err.Error() != "number 3" {
			t.Errorf("Each(%d) = %v, want that of number 3", n, err)
		}
	}
}

func TestEachBeginsNothingAfterAnError(t *testing.T) {
	const n = 100_000
	var calls atomic.Int32
	_ = parallel.Each(n, func(int) error { calls.Add(1); return fmt.Errorf("broken") })
	if got := calls.Load(); got == n {
		t.Error("Each goes on after an error")
	}
}
