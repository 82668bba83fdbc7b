package hostlist

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// What a server bounds, no sandbox has more of.
func TestLimitsStayWithinBounds(t *testing.T) {
	for _, tt := range []struct{ limits, bounds, want string }{
		{"", "out=1G", "out=1G"},
		{"out=2G,in=1G", "out=1G", "out=1G,in=1G"},
		{"out=1M", "out=1G", "out=1M"},
		{"out=1M", "", "out=1M"},
	} {
		if got, err := LimitsWithin(tt.limits, tt.bounds); err != nil || got != tt.want {
			t.Errorf("%s within %s: got %s, %v", tt.limits, tt.bounds, got, err)
		}
	}
	for _, text := range []string{"out=1024M", "in=1G,out=1G", "x"} { // not in their one form
		if err := CheckLimits(text); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("%s: %v, want Precondition", text, err)
		}
	}
}
