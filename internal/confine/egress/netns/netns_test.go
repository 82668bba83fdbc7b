package netns_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/netns"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in calls do on a thread in the namespace.
func in(t *testing.T, namespace *os.File, do func() error) error {
	t.Helper()
	done := make(chan error)
	thread.Go(func() {
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	})
	return <-done
}

// inside dials from a thread in the namespace.
func inside(t *testing.T, n *netns.Namespace, network, address string) error {
	t.Helper()
	return in(t, n.File(), func() error {
		c, err := net.Dial(network, address)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// foreign makes a namespace as a runtime does, and runs commands there.
func foreign(t *testing.T, commands ...string) *os.File {
	t.Helper()
	testenv.Root(t)
	testenv.Command(t, "ip")
	made := make(chan error)
	var f *os.File
	thread.Go(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	})
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	shell(t, f, commands...)
	return f
}

// shell runs commands in the namespace.
func shell(t *testing.T, namespace *os.File, commands ...string) {
	t.Helper()
	for _, c := range commands {
		err := in(t, namespace, func() error { return exec.Command("sh", "-c", c).Run() })
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
}

func TestEveryAddressIsLocal(t *testing.T) {
	testenv.Root(t)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	everyAddressIsLocal(t, n)
}

// A runtime may let everybody listen at every port, and have no IPv6.
func TestEveryAddressOfAnEnteredNamespaceIsLocal(t *testing.T) {
	f := foreign(t, "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start", "echo 0 1 >/proc/sys/net/ipv4/ping_group_range",
		"! test -d /proc/sys/net/ipv6 || echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6",
		"ip link add away type veth peer name here") // down, as what modules of the kernel make
	n, err := netns.Enter(f, func(name string) { t.Errorf("it has the network %s", name) })
	if err != nil {
		t.Fatal(err)
	}
	shell(t, f, "test $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start) = 1024", `test "$(cat /proc/sys/net/ipv4/ping_group_range | tr '\t' ' ')" = "1 0"`)
	everyAddressIsLocal(t, n)
}

func TestEnterRefusesANamespaceWithAnotherNetwork(t *testing.T) {
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for name, f := range map[string]*os.File{
		"another interface": foreign(t, "ip link add away type veth peer name here", "ip link set here up"),
		"this process's":    own,
	} {
		n, err := netns.Enter(f, func(string) {})
		if !errdefs.Is(err, errdefs.Unsupported) {
			t.Errorf("%s: got %v, want Unsupported", name, err)
		}
		if err == nil {
			n.Close()
		}
	}
}

// An interface that is down leads nowhere.
func TestAnotherNetworkIsNoticed(t *testing.T) {
	f := foreign(t)
	changed := make(chan string, 2)
	n, err := netns.Enter(f, func(name string) { changed <- name })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	shell(t, f, "ip link add away type veth peer name here", "ip link add dev second type veth peer name third", "ip link set third up")
	if name := <-changed; name != "third" {
		t.Errorf("got %s, want third", name)
	}
}

func everyAddressIsLocal(t *testing.T, n *netns.Namespace) {
	t.Helper()
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
