package cli

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// allowedHosts reads --allow-net and --net-allow. Errors: Invalid.
func (o *sandboxOptions) allowedHosts() ([]string, error) {
	if _, err := hostlist.Parse(o.Allow); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--allow-net %w", err)
	}
	hosts, err := hostlist.ParseLimited(o.Allow, o.Requests)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--net-allow %w", err)
	}
	return hosts, nil
}

// hostsOf reads the hosts of a policy file, nil for none. Errors: Invalid, with the place.
func hostsOf(n *policyfile.Network) ([]string, error) {
	if n == nil {
		return nil, nil
	}
	for _, h := range n.Allow {
		if _, err := hostlist.Parse([]string{h.Text}); err != nil {
			return nil, h.At(err)
		}
	}
	if _, err := limitsOf(n); err != nil {
		return nil, err
	}
	hosts, err := hostlist.Parse(n.Texts())
	if err != nil {
		return nil, n.At(err)
	}
	return hosts, nil
}

// addFileNetwork adds the hosts of the policy file to those of the flags, and to n. --net of
// the caller counts instead. Errors: those of checks that n has passed without these hosts.
func (o *sandboxOptions) addFileNetwork(e *env, cmd *cobra.Command, b backend.Backend, n *backend.NewSandbox) error {
	if !o.hasFileNetwork(e, cmd) {
		return nil
	}
	o.Allow = append(slices.Clone(o.Allow), o.fileNetwork.Texts()...)
	n.Net, n.AllowNet = o.network()
	limits, err := limitsOf(o.fileNetwork)
	if err == nil {
		n.NetLimits, err = hostlist.LimitsOr(n.NetLimits, limits)
	}
	if err == nil {
		err = o.check()
	}
	if err == nil {
		err = o.checkSecrets(n.Env)
	}
	if err == nil {
		err = b.Check(*n)
	}
	return err
}

// hasFileNetwork reports whether the hosts of the policy file count.
func (o *sandboxOptions) hasFileNetwork(e *env, cmd *cobra.Command) bool {
	if o.fileNetwork == nil {
		return false
	}
	if cmd.Flags().Changed("net") {
		e.say("network: --net %s counts, not the policy file", o.Net)
		return false
	}
	return true
}

// changeToFileNetwork lets a known sandbox reach the hosts of the policy file and of
// --allow-net, and no others. Errors: those of backend.Backend.ChangeHosts.
func (o *sandboxOptions) changeToFileNetwork(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, sb backend.Sandbox, reason string) error {
	if !o.hasFileNetwork(e, cmd) {
		return nil
	}
	want, err := hostlist.ParseLimited(slices.Concat(o.Allow, o.fileNetwork.Texts()), o.Requests)
	if err != nil {
		return err
	}
	missing, err := o.missingHosts(want)
	if err != nil {
		return err
	}
	want = append(want, missing...)
	c := hostlist.Change{Reason: reason}
	has := sb.Record.Hosts(time.Now())
	for _, host := range has {
		if !slices.Contains(want, host) {
			c.Revoke = append(c.Revoke, host)
		}
	}
	for _, host := range want {
		if _, ends := sb.Record.AllowNetUntil[host]; ends || !slices.Contains(has, host) {
			c.Grant = append(c.Grant, host)
		}
	}
	if len(c.Grant)+len(c.Revoke) == 0 {
		return nil
	}
	_, err = b.ChangeHosts(ctx, sb.Ref(), c)
	return err
}

// checkNetwork refuses a network that is unknown, and hosts that are malformed or do not go
// with the other flags.
func (o *sandboxOptions) checkNetwork() error {
	hosts, err := o.allowedHosts()
	switch {
	case o.Net != "none" && o.Net != "host":
		return errdefs.New(errdefs.Invalid, "--net %s: want none or host%s; for named hosts, use --allow-net HOST", o.Net, didYouMean(o.Net, []string{"none", "host"}))
	case err != nil:
		return err
	case len(o.Publish) > 0 && o.Net != "none":
		return errdefs.New(errdefs.Invalid, "--publish: not with --net %s: what listens inside is on this host's network already; leave one of the two out", o.Net)
	case o.limitsError() != nil:
		return o.limitsError()
	case len(hosts) > 0 && o.Net != "none":
		return errdefs.New(errdefs.Invalid, "--allow-net and --net-allow: not with --net %s, by which every host can be reached; leave --net out", o.Net)
	}
	return o.checkPublished(hosts)
}

// limitsError refuses --net-limit that is malformed, or without a use.
func (o *sandboxOptions) limitsError() error {
	limits, err := hostlist.ParseLimits(o.NetLimits...)
	switch {
	case err != nil:
		return errdefs.New(errdefs.Invalid, "--net-limit %w", err)
	case limits != "" && o.Net != "none":
		return errdefs.New(errdefs.Invalid, "--net-limit: not with --net %s, which has no limits; leave --net out", o.Net)
	}
	return nil
}

// checkFileLimits refuses limits of the policy file that a known sandbox does not have: they
// change together with its other settings. Errors: Precondition.
func (o *sandboxOptions) checkFileLimits(cmd *cobra.Command, r record.Record) error {
	if o.fileNetwork == nil || len(o.fileNetwork.Limits) == 0 || cmd.Flags().Changed("net") {
		return nil
	}
	limits, err := limitsOf(o.fileNetwork)
	join := hostlist.LimitsOr // of --net-limit a sandbox may have higher ones than the file
	if r.Served != nil {
		join = hostlist.LimitsWithin // those that it has may be the server's
	}
	if err == nil {
		limits, err = join(r.NetLimits, limits)
	}
	if err != nil || limits == r.NetLimits {
		return err
	}
	return o.fileNetwork.At(errdefs.New(errdefs.Precondition, "limits: sandbox %[1]s has other ones (%[2]s); first: agentfense run --name %[1]s --net-limit %[3]s", r.Name, cmp.Or(r.NetLimits, "none"), limits))
}

// limitsOf reads the limits of a policy file. Errors: Invalid, with the place.
func limitsOf(n *policyfile.Network) (string, error) {
	var texts []string
	for _, l := range n.Limits {
		text := l.Name + "=" + l.Value
		if _, err := hostlist.ParseLimits(text); err != nil {
			return "", l.At(err)
		}
		texts = append(texts, text)
	}
	return hostlist.ParseLimits(texts...)
}

// network is what the flags ask for, which were checked.
func (o *sandboxOptions) network() (net string, allowed []string) {
	if allowed, err := o.allowedHosts(); err == nil && (o.namedNet || len(allowed)+len(o.Secrets)+len(o.Publish) > 0) {
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
