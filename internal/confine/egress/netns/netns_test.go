package netns_test

import (
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/netns"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inside dials from a thread in the namespace.
func inside(t *testing.T, n *netns.Namespace, network, address string) error {
	t.Helper()
	done := make(chan error)
	thread.Go(func() {
		err := unix.Setns(int(n.File().Fd()), unix.CLONE_NEWNET)
		if err == nil {
			var c net.Conn
			if c, err = net.Dial(network, address); err == nil {
				c.Close()
			}
		}
		done <- err
	})
	return <-done
}

func TestEveryAddressIsLocal(t *testing.T) {
	testenv.Root(t)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, text := range []string{"93.184.216.34:443", "100.64.0.2:443", "[2606:2800:220:1::1]:443"} {
		at := netip.MustParseAddrPort(text)
		if inside(t, n, "tcp", text) == nil {
			t.Errorf("something listens at %s", text)
		}
		f, err := n.ListenTCP(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := inside(t, n, "tcp", text); err != nil {
			t.Errorf("connect to %s: %v", text, err)
		}
		if _, err := n.ListenTCP(at); !errdefs.Is(err, errdefs.Unavailable) {
			t.Errorf("listen at %s again: got %v, want Unavailable", text, err)
		}
		f.Close()
		if inside(t, n, "tcp", text) == nil {
			t.Errorf("something listens at %s still", text)
		}
	}
}
