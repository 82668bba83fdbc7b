package egress

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/question"
)

func portOf(t *testing.T, l net.Listener, err error) uint16 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// A connection to localhost is used only when the supervisor has said so.
func TestAConnectionToLocalhostWaitsForTheSupervisor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	port := portOf(t, l, err)
	for _, reason := range []string{"", question.ReasonOwnPort} {
		p := dialer(t, func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		})
		p.checks.Ask = func(id uint64, asked uint16) {
			if asked != port {
				t.Errorf("asked for port %d, want %d", asked, port)
			}
			p.checks.Answer(id+1, "another question")
			p.checks.Answer(id, reason)
			p.checks.Answer(id, "a second answer")
		}
		c, err := p.dial(t.Context(), target{"localhost", port})
		if (err == nil) != (reason == "") || err != nil && err.Error() != reason {
			t.Errorf("answer %q: %v", reason, err)
		}
		if c != nil {
			c.Close()
		}
	}
	p := dialer(t, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	})
	ctx, cancel := context.WithCancel(t.Context())
	p.checks.Ask = func(uint64, uint16) { cancel() }
	if _, err := p.dial(ctx, target{"localhost", port}); err == nil || !strings.Contains(err.Error(), question.ReasonUnknown) {
		t.Errorf("without an answer: %v", err)
	}
}

func TestAQuestionForAPortThatNoRuleNamesEndsTheProcess(t *testing.T) {
	e, c, _, _ := newSupervisor(t)
	if err := e.take(c, report{Check: 1, Port: 80}); err == nil {
		t.Error("it was answered")
	}
}
