package docker

import (
	"testing"

	"github.com/agentfense/agentfense/internal/confine/isolate"
)

func TestOnlyWithoutANetworkAreItsFilesOurs(t *testing.T) {
	for net, want := range map[isolate.Net]struct {
		mode string
		ours bool
	}{
		isolate.NetNone:   {"none", true},
		isolate.NetHost:   {"host", false},
		isolate.NetBridge: {"bridge", false},
	} {
		p := &plan{spec: isolate.Spec{Net: net}}
		if got := p.hostConfig().NetworkMode; got != want.mode {
			t.Errorf("network mode = %q, want %q", got, want.mode)
		}
		if _, ours := p.etc()["resolv.conf"]; ours != want.ours {
			t.Errorf("%s: resolv.conf is ours: %t, want %t", want.mode, ours, want.ours)
		}
	}
}
