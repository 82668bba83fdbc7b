package present

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

func TestTheReportTellsRulesAndWhatIsNotKnown(t *testing.T) {
	var n NetReport
	for _, ev := range []audit.Event{
		audit.NetworkAllowed{Host: "a", Port: 80, Rule: "a:80", SentBytes: 10, ReceivedBytes: 100, Requests: 2},
		audit.NetworkAllowed{Host: "a", Port: 80, Rule: "a:80", SentBytes: -1, ReceivedBytes: -1},
		audit.NetworkAllowed{Host: "a", Port: 443, Rule: "a:443", Error: "connection refused"},
		audit.NetworkDenied{Host: "c", Port: 1, Reason: "x", Count: 2},
		audit.NetworkDenied{Socket: "vsock socket", Program: "a", Reason: "y", Count: 1},
		audit.NetworkDenied{Socket: "vsock socket", Program: "b", Reason: "y", Count: 4},
		audit.EventsOmitted{Events: []audit.OmittedCount{
			{Event: audit.KindNetworkAllowed, Records: 3},
			{Event: audit.KindNetworkDenied, Records: 4, Count: 9},
			{Event: audit.KindPermissionDenied, Records: 5, Count: 5},
		}},
		audit.SandboxStopped{},
	} {
		n.Add(audit.Record{Event: ev})
	}
	wantHosts := []HostTraffic{
		{Host: "a", Port: 80, Rule: "a:80", Connections: 2, Requests: 2, SentBytes: 10, ReceivedBytes: 100, Uncounted: 1},
		{Host: "a", Port: 443, Rule: "a:443", Failed: 1},
	}
	if diff := cmp.Diff(wantHosts, n.Hosts()); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]RefusedTraffic{{Socket: "vsock socket", Reason: "y", Count: 5}, {Host: "c", Port: 1, Reason: "x", Count: 2}}, n.Refused()); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	if connections, refusals := n.Omitted(); connections != 3 || refusals != 9 {
		t.Errorf("omitted: %d connections, %d refusals, want 3 and 9", connections, refusals)
	}
}
