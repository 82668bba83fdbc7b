package cli

import (
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// allowedHosts reads --allow-net. Errors: Invalid.
func (o *sandboxOptions) allowedHosts() ([]string, error) {
	hosts, err := hostlist.Parse(o.Allow)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--allow-net %w", err)
	}
	return hosts, nil
}

// checkNetwork refuses a network that is unknown, and hosts that are malformed or do not go
// with the other flags.
func (o *sandboxOptions) checkNetwork() error {
	_, err := o.allowedHosts()
	switch {
	case o.Net != "none" && o.Net != "host":
		return errdefs.New(errdefs.Invalid, "--net %s: want none or host%s", o.Net, didYouMean(o.Net, []string{"none", "host"}))
	case err != nil:
		return err
	case len(o.Allow) > 0 && o.Net != "none":
		return errdefs.New(errdefs.Invalid, "--allow-net: not with --net %s, by which every host can be reached", o.Net)
	}
	return nil
}

// network is what the flags ask for, which were checked.
func (o *sandboxOptions) network() (net string, allowed []string) {
	if allowed, err := o.allowedHosts(); err == nil && len(allowed)+len(o.Secrets) > 0 {
		return record.NetNamed, allowed
	}
	return o.Net, nil
}

// allowPresets are the presets of --allow-net.
func allowPresets() []string {
	var names []string
	for _, name := range allowlist.PresetNames() {
		names = append(names, "@"+name)
	}
	return names
}
