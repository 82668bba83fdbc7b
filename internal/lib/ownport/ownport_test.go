package ownport

import (
	"net"
	"testing"
)

func portOf(l net.Listener) uint16 { return l.Addr().(*net.TCPAddr).AddrPort().Port() }

// want checks a port at which n sockets of the test listen. Another program may have the same port
// at another address.
func want(t *testing.T, port uint16, n int, marked bool) {
	t.Helper()
	gotN, gotMarked, err := Count(port)
	if err != nil || gotN < n || gotMarked != marked {
		t.Errorf("got %d listeners, marked %t, %v; want at least %d, %t", gotN, gotMarked, err, n, marked)
	}
}

// A listener of ours is marked as long as it listens, at every address and of both families, and no
// other one is.
func TestOurListenersAreMarked(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "127.0.0.5:0", "[::1]:0", ":0"} {
		t.Run(address, func(t *testing.T) {
			l, err := Listen(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			port := portOf(l)
			want(t, port, 1, true)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			other, err := net.Listen("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			want(t, port, 1, false)
		})
	}
}

func TestAListenerBesideAnotherIsMarked(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, port, err := net.SplitHostPort(other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	want(t, portOf(other), 1, false)
	ours, err := Listen(t.Context(), "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	want(t, portOf(other), 2, true)
}

func TestAnAddressThatIsTakenKeepsNoMark(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if l, err := Listen(t.Context(), other.Addr().String()); err == nil {
		l.Close()
		t.Error("two listen at one address")
	}
	want(t, portOf(other), 1, false)
}
