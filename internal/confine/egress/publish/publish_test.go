package publish

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// freePort is a port that nothing has at an address.
func freePort(t *testing.T, addr string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func listen(t *testing.T, at netip.AddrPort, inside uint16) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), Port{at, inside})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, at netip.AddrPort) error {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if err == nil {
		c.Close()
	}
	return err
}

// No address but one of the loopback network is taken.
func TestOnlyLoopbackAddressesAreTaken(t *testing.T) {
	for _, at := range []string{"0.0.0.0:8000", "192.0.2.1:8000", "[::1]:8000", "[::]:8000", "126.0.0.1:8000"} {
		if l, err := Listen(t.Context(), Port{netip.MustParseAddrPort(at), 3000}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: got %v, %v, want Invalid", at, l, err)
		}
	}
}

// A port that is still taken, by what a killed supervisor has left, is there a moment later.
func TestAPortThatBecomesFreeIsTaken(t *testing.T) {
	at := freePort(t, "127.0.0.9")
	other, err := net.Listen("tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(3*takenPause, func() { other.Close() })
	l, err := Listen(t.Context(), Port{at, 3000})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// While nothing serves it, a port refuses connections, and no other program gets it.
func TestAPausedPortIsClosedAndNotLost(t *testing.T) {
	l := listen(t, freePort(t, "127.0.0.9"), 3000)
	refused := func(when string) {
		t.Helper()
		if err := dial(t, l.At); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: got %v, want a refusal", when, err)
		}
		if other, err := net.Listen("tcp4", l.At.String()); err == nil {
			other.Close()
			t.Errorf("%s: another program has the port", when)
		}
		soon, cancel := context.WithTimeout(t.Context(), 2*takenPause)
		defer cancel()
		if _, err := Listen(soon, l.Port); !errdefs.Is(err, errdefs.Unavailable) {
			t.Errorf("%s: got %v, want Unavailable", when, err)
		}
	}
	refused("at first")
	for range 2 {
		if err := l.Resume(); err != nil {
			t.Fatal(err)
		}
		if err := dial(t, l.At); err != nil {
			t.Fatal(err)
		}
		l.Pause()
		refused("paused")
	}
}

// world is a Server with a port, and "inside", which is this host at another port.
type world struct {
	at     netip.AddrPort
	ended  chan Inbound
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func newWorld(t *testing.T, inside uint16) *world {
	t.Helper()
	l := listen(t, freePort(t, "127.0.0.9"), inside)
	w := &world{at: l.At, ended: make(chan Inbound, 10)}
	var open Open
	var mu sync.Mutex
	server := &Server{
		Busy: func() func() { return func() {} },
		Sockets: func(context.Context) (files []*os.File) {
			for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
				fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
				if err != nil {
					break
				}
				files = append(files, os.NewFile(uintptr(fd), "inside"))
			}
			return files
		},
		Tell: func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			in, ended, err := open.Take(e, []*Listener{l})
			if err != nil {
				t.Error(err)
			}
			if ended {
				w.ended <- in
			}
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	if err := l.Resume(); err != nil {
		t.Fatal(err)
	}
	accepting, err := net.FileListener(l.File())
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(ctx, &w.work, l.Port, accepting)
	t.Cleanup(func() {
		cancel()
		w.work.Wait()
	})
	return w
}

// exchange sends a text, ends, and wants it back.
func exchange(t *testing.T, at netip.AddrPort) {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = io.WriteString(c, "hello")
	err = errors.Join(err, c.(*net.TCPConn).CloseWrite())
	got, readErr := io.ReadAll(c)
	if err := errors.Join(err, readErr); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// echo is a program at an address of its loopback.
func echo(t *testing.T, address string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("no IPv6 here") // the test asks for IPv6 where it may be missing
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // how it ends the client sees
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

func TestConnectionsReachTheProgramInside(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			w := newWorld(t, echo(t, address))
			exchange(t, w.at)
			if in := <-w.ended; in.Sent != 5 || in.Received != 5 || in.Error != "" || in.At != w.at {
				t.Errorf("told of %+v", in)
			}
		})
	}
}

func TestNothingInsideIsAReset(t *testing.T) {
	w := newWorld(t, freePort(t, "127.0.0.1").Port())
	// The reset may already have arrived when Dial looks at the new connection.
	c, err := net.Dial("tcp", w.at.String())
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	if in := <-w.ended; in.Error != ReasonNothing {
		t.Errorf("told of %+v", in)
	}
}

// What a process says of connections that cannot be is refused.
func TestConnectionsThatCannotBeAreRefused(t *testing.T) {
	l := listen(t, freePort(t, "127.0.0.9"), 3000)
	all := []*Listener{l}
	other := l.Port
	other.Inside++
	var o Open
	if _, _, err := o.Take(Event{ID: 1, Inbound: Inbound{Port: other}}, all); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("another port: got %v", err)
	}
	for i := range maxOpen {
		if _, _, err := o.Take(Event{ID: uint64(i), Inbound: Inbound{Port: l.Port}}, all); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := o.Take(Event{ID: maxOpen, Inbound: Inbound{Port: l.Port}}, all); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("too many: got %v", err)
	}
	in, ended, err := o.Take(Event{1, true, Inbound{Port: other, Sent: -5, Received: 1 << 62, Error: string(make([]byte, 1000))}}, all)
	if err != nil || !ended || in.Port != l.Port || in.Sent != 0 || in.Received != maxSum || len(in.Error) != maxErrorText {
		t.Errorf("got %+v, %t, %v", in, ended, err)
	}
	if _, ended, err := o.Take(Event{ID: 1, Ended: true}, all); ended || err != nil {
		t.Errorf("one that has ended: %t, %v", ended, err)
	}
	if rest := o.Rest(); len(rest) != maxOpen-1 || rest[0].Sent != -1 {
		t.Errorf("%d are left, the first %+v", len(rest), rest[0])
	}
}
