package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/address"
)

// dialer is a process that connects by a function.
func dialer(t *testing.T, connect func(ctx context.Context, addr string) (net.Conn, error)) *process {
	t.Helper()
	p := newProcess(nil)
	p.connect = func(ctx context.Context, _, addr string) (net.Conn, error) { return connect(ctx, addr) }
	t.Cleanup(p.working.Wait)
	return p
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// An address that does not answer holds up no connection, and an attempt that succeeds too late is
// closed.
func TestAnAddressThatIsSilentHoldsNothingUp(t *testing.T) {
	connected := make(chan struct{})
	late, lateEnd := net.Pipe()
	p := dialer(t, func(ctx context.Context, addr string) (net.Conn, error) {
		if addr != "[2606:2800:220:1::2]:443" {
			c, end := net.Pipe()
			end.Close()
			close(connected)
			return c, nil
		}
		select {
		case <-connected:
			return late, nil
		case <-ctx.Done():
			t.Error("the attempt ended before another one began")
			return nil, ctx.Err()
		}
	})
	c, err := p.connectFirst(t.Context(), addrs("2606:2800:220:1::2", "93.184.216.34"), 443)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := lateEnd.Read(make([]byte, 1)); err == nil {
		t.Error("the late connection stays open")
	}
}

func TestAddressesThatFailAreAllTried(t *testing.T) {
	refused := errors.New("refused")
	tried := make(chan string, 3)
	p := dialer(t, func(_ context.Context, addr string) (net.Conn, error) {
		tried <- addr
		return nil, refused
	})
	_, err := p.connectFirst(t.Context(), addrs("192.0.2.1", "192.0.2.2", "192.0.2.3"), 80)
	if !errors.Is(err, refused) || len(tried) != 3 {
		t.Errorf("%d addresses were tried, %v", len(tried), err)
	}
}

func TestFamiliesTakeTurns(t *testing.T) {
	got := address.Alternate(addrs("2606::1", "2606::2", "2606::3", "192.0.2.1", "::ffff:192.0.2.2"))
	if want := addrs("2606::1", "192.0.2.1", "2606::2", "::ffff:192.0.2.2", "2606::3"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := address.Alternate(nil); len(got) != 0 {
		t.Errorf("got %v of nothing", got)
	}
}
