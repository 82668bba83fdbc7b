package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// grantFlags are the flags of policy grant and policy revoke.
type grantFlags struct {
	Net []string
	For time.Duration
}

func newPolicyGrant(e *env) *cobra.Command {
	var o grantFlags
	cmd := &cobra.Command{
		Use:   "grant NAME {PATH PERMISSION | --net HOST[:PORT]}",
		Short: "Let a sandbox use a path or reach hosts, a running one at once",
		Long: `Give a path of a sandbox's workspace the permission view, read or write, or let the
sandbox reach more hosts, as run --allow-net does. A running sandbox has the grant at
once. PATH is relative to the workspace; if it is a directory, or ends with a slash, the
grant covers all below it. A pattern is no path: use policy set for one.

With --for the grant ends after a time, also if the sandbox is stopped and started in
between. Then connections to the host are closed, and an open file can no longer be
read or written. What was written stays and can be applied. Grants of a path add up: the
strongest one that is valid decides, and a weaker one that lasts longer decides after it.
policy revoke takes all of them back. The audit log keeps each change.

A sandbox without a network gets one of named hosts by --net; it must be stopped.`,
		Example: `  agentfense policy grant fix config/dev.yaml write
  agentfense policy grant fix .env read --for 10m
  agentfense policy grant fix --net @npm
  agentfense policy grant fix --net api.example.com --for 10m`,
		Args:              cobra.RangeArgs(1, 3),
		ValidArgsFunction: e.completeNames,
	}
	o.register(cmd)
	cmd.Flags().DurationVar(&o.For, "for", 0, "how long the grant lasts, such as 10m (default: until it is revoked)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.checkArgs("grant", args, 3); err != nil {
			return err
		}
		if changed(cmd, []string{"for"}) && o.For <= 0 {
			return errdefs.New(errdefs.Invalid, "--for %s: want a time above 0, such as 10m", o.For)
		}
		if len(args) > 1 {
			permission, err := policy.ParsePermission(args[2])
			if err == nil && permission == policy.None {
				err = errdefs.New(errdefs.Invalid, "none is no grant: use agentfense policy set %s --hide %s", args[0], policy.QuoteForShell(args[1]))
			}
			if err != nil {
				return errdefs.New(errdefs.Invalid, "policy grant: %w", err)
			}
			return e.changePath(cmd, args[0], args[1], granted.Change{Permission: permission, For: o.For, Reason: "policy grant"})
		}
		hosts, err := o.hosts()
		if err != nil {
			return err
		}
		return e.changeHosts(cmd, args[0], hostlist.Change{Grant: hosts, For: o.For, Reason: "policy grant"})
	}
	return cmd
}

func newPolicyRevoke(e *env) *cobra.Command {
	var o grantFlags
	cmd := &cobra.Command{
		Use:   "revoke NAME {PATH | --net HOST[:PORT]}",
		Short: "Take a grant of a path or of hosts back, from a running sandbox at once",
		Long: `Take back what policy grant, or an answer to an ask, granted of a path, or no longer let
a sandbox reach hosts. When this returns, open connections to them are closed. The
audit log keeps each change.`,
		Example: `  agentfense policy revoke fix config/dev.yaml
  agentfense policy revoke fix --net api.example.com`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.completeNames,
	}
	o.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.checkArgs("revoke", args, 2); err != nil {
			return err
		}
		if len(args) > 1 {
			return e.changePath(cmd, args[0], args[1], granted.Change{Reason: "policy revoke"})
		}
		hosts, err := o.hosts()
		if err != nil {
			return err
		}
		return e.changeHosts(cmd, args[0], hostlist.Change{Revoke: hosts, Reason: "policy revoke"})
	}
	return cmd
}

// checkArgs wants the name of a sandbox with --net, and count arguments without.
func (o *grantFlags) checkArgs(verb string, args []string, count int) error {
	wrong := ""
	switch {
	case len(o.Net) > 0 && len(args) > 1:
		wrong = "a path and --net exclude each other: use two commands"
	case len(o.Net) == 0 && len(args) == 1:
		wrong = "a path or --net HOST[:PORT] is missing"
	case len(args) == 2 && count == 3:
		wrong = "the permission of " + vpath.Quote(args[1]) + " is missing: view, read or write"
	default:
		return nil
	}
	return usageError{errdefs.New(errdefs.Invalid, "policy %s: %s", verb, wrong)}
}

func (o *grantFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.Net, "net", nil, "a `HOST[:PORT]`, as run --allow-net takes it, also with ,raw or ',intercept METHOD PATH'")
	cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions(allowPresets(), cobra.ShellCompDirectiveNoFileComp))
	marked(cmd)
}

// hosts reads --net.
func (o *grantFlags) hosts() ([]string, error) {
	hosts, err := hostlist.Parse(o.Net)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--net: %w", err)
	}
	return hosts, nil
}

// changePath grants a path of the workspace, or revokes its grants.
func (e *env) changePath(cmd *cobra.Command, name, text string, g granted.Change) error {
	return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
		has, err := b.Policy(ctx, name)
		if err != nil {
			return err
		}
		if err := notOnHost([]policy.Rule{{Pattern: text}}, string(has.Record.Source.Path)); err != nil {
			return err
		}
		if g.Path, err = vpath.Parse(text); err != nil {
			return errdefs.New(errdefs.Invalid, "path %s: %w", vpath.Quote(text), err)
		}
		g.Dir = strings.HasSuffix(text, "/") || has.IsDir(g.Path.Rel())
		sb, err := b.GrantPath(ctx, has.Ref(), g)
		if err != nil {
			return err
		}
		p, err := policy.Compile(sb.Record.Rules, policy.Options{Reserved: has.Reserved})
		if err != nil {
			return err
		}
		d := p.Decide(g.Path)
		e.say("%s: %s is now %s%s", sb.Record.Name, g.Path, d.Permission, grantEnd(&sb.Record, g))
		if d.Permission < g.Permission {
			return errdefs.New(errdefs.Precondition, "%s: granted, and without effect: %s", g.Path, d.Reason)
		}
		return nil
	})
}

// grantEnd says when a grant ends.
func grantEnd(r *record.Record, g granted.Change) string {
	for _, has := range r.Grants {
		if !has.Over && has.Rule.Pattern == string(g.Path) && g.Permission != policy.None {
			return ", until " + present.LocalTime(has.Until)
		}
	}
	return ""
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
			host += " (until " + present.LocalTime(until) + ")"
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
