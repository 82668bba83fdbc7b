package question

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestAddressesAreKeptForAMoment(t *testing.T) {
	var table Names
	asked := 0
	fail := false
	find := table.Pinned(func(context.Context, string) ([]netip.Addr, error) {
		asked++
		if fail {
			return nil, errors.New("no answer")
		}
		return []netip.Addr{netip.AddrFrom4([4]byte{93, 184, 216, byte(asked)})}, nil
	})
	expect := func(name string, want int) {
		t.Helper()
		addrs, err := find(t.Context(), name)
		if err != nil || asked != want || len(addrs) != 1 {
			t.Errorf("%s: %v, %v, asked %d times, want %d", name, addrs, err, asked, want)
		}
	}
	expect("a.", 1)
	expect("a.", 1)
	expect("b.", 2)
	table.Forget("a.")
	expect("a.", 3)
	table.known["a."] = pin{table.known["a."].addrs, time.Now()}
	expect("a.", 4)
	for i := range maxPins {
		expect(fmt.Sprint(i), 5+i)
	}
	if len(table.known) > maxPins {
		t.Errorf("%d names are kept", len(table.known))
	}
	fail = true
	table.Forget("a.")
	for range 2 {
		before := asked
		if _, err := find(t.Context(), "a."); err == nil || asked == before {
			t.Error("a failure is kept")
		}
	}
}
