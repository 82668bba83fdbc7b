package present

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

func TestTheNetworkIsSummedUpByHost(t *testing.T) {
	var n NetworkSum
	for _, ev := range []audit.Event{
		audit.NetworkAllowed{Host: "a", Port: 443, SentBytes: 10, ReceivedBytes: 100},
		audit.NetworkAllowed{Host: "b", Port: 443, SentBytes: 20, ReceivedBytes: 1},
		audit.NetworkAllowed{Host: "a", Port: 80, SentBytes: 5, ReceivedBytes: -1, Requests: 3},
		audit.NetworkAllowed{Host: "a", Port: 80, Error: "connection refused"},
		audit.NetworkDenied{Host: "c", Reason: "x", Count: 1},
		audit.NetworkDenied{Host: "d", Port: 443, Reason: "y", Count: 2},
		audit.NetworkDenied{Host: "d", Port: 443, Reason: "y", Count: 1},
		audit.SandboxStopped{},
	} {
		n.Add(audit.Record{Event: ev})
	}
	wantUsed := []HostUse{
		{Host: "b", Connections: 1, SentBytes: 20, ReceivedBytes: 1},
		{Host: "a", Connections: 2, Requests: 3, SentBytes: 15, ReceivedBytes: 100, Failed: 1, Failure: "connection refused"},
	}
	if diff := cmp.Diff(wantUsed, n.Used()); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	wantRefused := []HostRefusal{{Host: "d", Port: 443, Reason: "y", Count: 3}, {Host: "c", Reason: "x", Count: 1}}
	if diff := cmp.Diff(wantRefused, n.Refused()); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}
