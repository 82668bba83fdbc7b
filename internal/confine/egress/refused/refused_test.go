package refused_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/denial"
	"github.com/agentfense/agentfense/internal/confine/egress/netns"
	"github.com/agentfense/agentfense/internal/confine/egress/refused"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a namespace with a Reader.
type world struct {
	t         *testing.T
	namespace *netns.Namespace
	reader    refused.Reader

	mu  sync.Mutex
	got map[denial.Denied]int // by refusals without a count
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.Root(t)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	sources, err := refused.Sources()
	if err != nil {
		t.Fatal(err)
	}
	var sockets []*os.File
	for _, s := range sources {
		f, err := n.Raw(s.Family, s.Protocol, s.Filter)
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, f)
	}
	w := &world{t: t, namespace: n, got: map[denial.Denied]int{}}
	w.reader.Name = func(r refused.Attempt) string { return r.At.Addr().String() }
	err = w.reader.Start(sockets, func(d denial.Denied) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := d.Count
		d.Count = 0
		w.got[d] += n
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// inside calls do on a thread in the namespace.
func (w *world) inside(do func() error) error {
	w.t.Helper()
	done := make(chan error)
	thread.Go(func() {
		err := unix.Setns(int(w.namespace.File().Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	})
	return <-done
}

// connect tries TCP, and returns the error.
func connect(address string) error {
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err
}

// send sends a datagram.
func send(address string) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("x"))
	return err
}

// What has no listener is known, and nothing else: no connection that is made, no reset of one, and
// nothing at the addresses that are the sandbox's own.
func TestWhatTheKernelRefusesIsReported(t *testing.T) {
	w := newWorld(t)
	listener, err := w.namespace.ListenTCP(netip.MustParseAddrPort("93.184.216.34:443"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	udp, err := w.namespace.ListenUDP(netip.MustParseAddrPort("0.0.0.0:53"))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	want := map[denial.Denied]int{}
	err = w.inside(func() error {
		for _, address := range []string{"93.184.216.34:80", "100.64.0.2:443", "93.184.216.34:80", "[2606:2800:220:1::1]:443", "127.0.0.1:80", "[::1]:80", "127.9.9.9:80"} {
			err := connect(address)
			if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EADDRNOTAVAIL) {
				continue // no IPv6 here
			}
			if !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("connect to %s: got %w, want a refusal", address, err)
			}
			at := netip.MustParseAddrPort(address)
			if !at.Addr().IsLoopback() {
				want[denial.Denied{Host: at.Addr().String(), Port: at.Port(), Reason: "not in the allowlist"}]++
			}
		}
		for _, address := range []string{"93.184.216.34:443", "[2606:2800:220:1::1]:443", "8.8.8.8:53", "127.0.0.1:9", "[::1]:9"} {
			err := send(address)
			at := netip.MustParseAddrPort(address)
			if err == nil && !at.Addr().IsLoopback() && at.Port() != 53 {
				want[denial.Denied{Host: at.Addr().String(), Port: at.Port(), Protocol: "udp", Reason: "UDP is refused, but for DNS"}]++
			}
		}
		c, err := net.Dial("tcp", "93.184.216.34:443")
		if err != nil {
			return err
		}
		return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()) // a reset of a connection
	})
	if err != nil {
		t.Fatal(err)
	}
	w.reader.Close()
	if len(want) < 3 || len(w.got) != len(want) {
		t.Errorf("got %v, want %v", w.got, want)
	}
	for d, n := range want {
		if w.got[d] != n {
			t.Errorf("%v: got %d, want %d", d, w.got[d], n)
		}
	}
}

// A scan of all ports costs a bounded number of reports, and each refusal counts.
func TestAScanOfAllPortsIsBounded(t *testing.T) {
	w := newWorld(t)
	began, tried := time.Now(), 0
	err := w.inside(func() error {
		for port := 1; port < 1<<16; port++ {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{93, 184, 216, 34}})
			unix.Close(fd)
			switch {
			case errors.Is(err, unix.ECONNREFUSED):
				tried++
			case err != nil:
				return fmt.Errorf("port %d: %w", port, err)
			} // else the kernel gave it this port as its own, and connected it to itself
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.reader.Close()
	total := 0
	for _, n := range w.got {
		total += n
	}
	if windows := int(time.Since(began)/(100*time.Millisecond)) + 2; len(w.got) > 34*windows || total != tried || tried < 60_000 {
		t.Errorf("%d kinds of refusals in %d windows of time, %d refusals", len(w.got), windows, total)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(slices.Concat([]byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 93, 184, 216, 34, 100, 64, 0, 1}, []byte{1, 187, 200, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x14, 0, 0, 0, 0, 0, 0}))
	f.Add(slices.Concat([]byte{0x45, 0, 0, 57, 0, 0, 0, 0, 64, 1, 0, 0, 8, 8, 8, 8, 100, 64, 0, 1, 3, 3, 0, 0, 0, 0, 0, 0},
		[]byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 100, 64, 0, 1, 8, 8, 8, 8, 200, 0, 1, 187, 0, 9, 0, 0}))
	f.Add(slices.Concat([]byte{0x60, 0, 0, 0, 0, 20, 6, 64}, make([]byte, 32), []byte{1, 187, 200, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x14, 0, 0, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, packet []byte) {
		check := func(r refused.Attempt, ok bool) {
			if ok && (!r.At.Addr().IsValid() || r.At.Addr().IsLoopback() || r.Protocol == "") {
				t.Errorf("got %+v", r)
			}
		}
		check(refused.Parse4(packet))
		for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_ICMPV6} {
			check(refused.Parse6(netip.MustParseAddr("2606:2800:220:1::1"), protocol, packet))
		}
	})
}

// A program that tries many ports by TCP does not hide what it sends by UDP.
func TestAFloodHidesNothingOfAnotherProtocol(t *testing.T) {
	w := newWorld(t)
	const tried = 500
	err := w.inside(func() error {
		for port := range tried {
			if err := connect(fmt.Sprintf("100.64.0.2:%d", port+1)); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("port %d: got %w, want a refusal", port+1, err)
			}
			if port == tried/2 {
				if err := send("100.64.0.3:443"); err != nil {
					return err
				}
			}
		}
		return nil
	})
	w.reader.Close()
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.got[denial.Denied{Host: "100.64.0.3", Port: 443, Protocol: "udp", Reason: "UDP is refused, but for DNS"}]; n != 1 {
		t.Errorf("the datagram counts %d times, want 1: %v", n, w.got)
	}
}
