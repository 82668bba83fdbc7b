package cli

import (
	"testing"

	"github.com/agentfense/agentfense/internal/cli/present"
)

func TestHostsAndRefusalsInWords(t *testing.T) {
	for want, got := range map[string]string{
		"a 41 requests, 2M out, 5 in":                                  hostText(present.HostUse{Host: "a", Connections: 3, Requests: 41, SentBytes: 2 << 20, ReceivedBytes: 5}),
		"a 1 connection, 0 out, 0 in, not reached once (no such host)": hostText(present.HostUse{Host: "a", Connections: 1, Failed: 1, Failure: "no such host"}),
		"a not reached (2: no such host)":                              hostText(present.HostUse{Host: "a", Failed: 2, Failure: "no such host"}),
		"vsock socket (2)":                                             refusalText(present.HostRefusal{Socket: "vsock socket", Reason: "no program gets a socket of this kind", Count: 2}),
		"b (3)":                                                        refusalText(present.HostRefusal{Host: "b", Reason: usualRefusal, Count: 3}),
		`b\x1b:22 (1: TLS without a server name)`:                      refusalText(present.HostRefusal{Host: "b\x1b", Port: 22, Reason: "TLS without a server name", Count: 1}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
