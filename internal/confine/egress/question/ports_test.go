package question

import (
	"net"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/ownport"
)

func portOf(t *testing.T, l net.Listener, err error) uint16 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

func TestAPortOfOursOrOfNobodyIsNotUsed(t *testing.T) {
	ours, err := ownport.Listen(t.Context(), "127.0.0.1:0")
	port := portOf(t, ours, err)
	if got := ReasonOfPort(port); got != ReasonOwnPort {
		t.Errorf("ours: %q", got)
	}
	ours.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	port = portOf(t, other, err)
	if got := ReasonOfPort(port); got != "" {
		t.Errorf("another's: %q", got)
	}
	if got := ReasonOfPort(1); got != ReasonNoPort { // tcpmux, which no host has
		t.Errorf("nobody's: %q", got)
	}
}
