package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// hostFlags are the flags of policy grant and policy revoke.
type hostFlags struct {
	Net []string
	For time.Duration
}

func newPolicyGrant(e *env) *cobra.Command {
	var o hostFlags
	cmd := &cobra.Command{
		Use:   "grant NAME --net HOST[:PORT]",
		Short: "Let a sandbox reach more hosts, a running one at once",
		Long: `Let a sandbox reach more hosts, as run --allow-net does. A running sandbox reaches
them at once. A sandbox without a network gets one of named hosts; it must be
stopped. With --for the grant ends after a time: then open connections are
closed. A grant with --for does not shorten an earlier grant. The audit log keeps each
change.`,
		Example: `  agentfense policy grant fix --net @npm
  agentfense policy grant fix --net api.example.com --for 10m`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	o.register(cmd)
	cmd.Flags().DurationVar(&o.For, "for", 0, "how long the grant lasts, such as 10m (default: until it is revoked)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if changed(cmd, []string{"for"}) && o.For <= 0 {
			return errdefs.New(errdefs.Invalid, "--for %s: want a time above 0, such as 10m", o.For)
		}
		hosts, err := o.hosts("grant")
		if err != nil {
			return err
		}
		return e.changeHosts(cmd, args[0], hostlist.Change{Grant: hosts, For: o.For, Reason: "policy grant"})
	}
	return cmd
}

func newPolicyRevoke(e *env) *cobra.Command {
	var o hostFlags
	cmd := &cobra.Command{
		Use:   "revoke NAME --net HOST[:PORT]",
		Short: "No longer let a sandbox reach hosts, a running one at once",
		Long: `No longer let a sandbox reach hosts. When this returns, open connections to them
are closed. The audit log keeps each change.`,
		Example:           `  agentfense policy revoke fix --net api.example.com`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	o.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		hosts, err := o.hosts("revoke")
		if err != nil {
			return err
		}
		return e.changeHosts(cmd, args[0], hostlist.Change{Revoke: hosts, Reason: "policy revoke"})
	}
	return cmd
}

func (o *hostFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.Net, "net", nil, "a `HOST[:PORT]`, as run --allow-net takes it, also with ,raw or ',intercept METHOD PATH'")
	cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions(allowPresets(), cobra.ShellCompDirectiveNoFileComp))
	marked(cmd)
}

// hosts reads --net.
func (o *hostFlags) hosts(verb string) ([]string, error) {
	if len(o.Net) == 0 {
		return nil, usageError{errdefs.New(errdefs.Invalid, "policy %s: --net HOST[:PORT] is missing", verb)}
	}
	hosts, err := hostlist.Parse(o.Net)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--net: %w", err)
	}
	return hosts, nil
}

func (e *env) changeHosts(cmd *cobra.Command, name string, c hostlist.Change) error {
	return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
		sb, err := b.ChangeHosts(ctx, name, c)
		if err != nil {
			return err
		}
		e.say("%s may reach: %s", sb.Record.Name, hostsText(&sb.Record))
		return nil
	})
}

// hostsText lists the hosts that a sandbox may reach, with the ends of grants.
func hostsText(r *record.Record) string {
	var parts []string
	for _, host := range r.Hosts(time.Now()) {
		until, ends := r.AllowNetUntil[host]
		if strings.Contains(host, " ") {
			host = "'" + host + "'"
		}
		if ends {
			host += " (until " + until.Local().Format("2006-01-02 15:04:05") + ")"
		}
		parts = append(parts, host)
	}
	if len(parts) == 0 {
		return "(no host)"
	}
	return strings.Join(parts, " ")
}

// networkText says what network a sandbox has, which may have secrets.
func networkText(r *record.Record, secrets bool) string {
	if r.Net != record.NetNamed {
		return r.Net
	}
	if secrets && len(r.Hosts(time.Now())) == 0 {
		return r.Net + " (the hosts of secrets only)"
	}
	return r.Net + " " + hostsText(r)
}
