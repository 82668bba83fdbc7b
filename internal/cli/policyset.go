package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
)

// setFlags are those that say what the new policy is.
var setFlags = []string{"preset", "policy", "write", "read", "view", "hide"}

func newPolicySet(e *env) *cobra.Command {
	var o policySource
	cmd := &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Replace the policy of a sandbox, of a running one at once",
		Long: `Replace the policy of a sandbox by a preset or a file, with the rules of flags. Of a
running sandbox nothing is answered by the old one when this returns; what the
sandbox changed before stays. The audit log keeps the new rules.`,
		Example: `  agentfense policy set fix --preset read-only
  agentfense policy set fix --policy policy.yaml --hide '*.sqlite'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	o.registerRules(cmd)
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !changed(cmd, []string{"preset", "policy"}) {
			return usageError{fault.New(fault.Invalid, "policy set: --preset or --policy is missing")}
		}
		return e.either(cmd,
			func() error { return runPolicySet(cmd.Context(), e, args[0], o) },
			func(ctx context.Context, s control.Server) error {
				sb, err := s.Sandbox(ctx, args[0])
				if err != nil {
					return err
				}
				rules, err := o.serverRules(ctx, e, s, sb.Record.Served.CodebaseID)
				if err != nil {
					return err
				}
				return e.setServerPolicy(ctx, s, sb, rules)
			}, setFlags...)
	}
	return cmd
}

func runPolicySet(ctx context.Context, e *env, name string, o policySource) error {
	home, sb, err := e.open(name)
	if err != nil {
		return err
	}
	if sb.Record().Served != nil {
		return fault.New(fault.Precondition, "sandbox %s: is a server's; ask it: agentfense policy set %[1]s --endpoint URL …", sb.Name())
	}
	rules, note, err := o.rules(e, home, string(sb.Record().Source.Path))
	if err == nil {
		err = o.sayWarnings(e, rules)
	}
	if err != nil {
		return err
	}
	if _, err := policy.Compile(rules, policy.Options{}); err != nil {
		return err
	}
	if err := sb.ReplaceRules(rules, note, "policy set", func(r *sandbox.Record) { r.Marks = o.marks }); err != nil {
		return err
	}
	live, err := client(ctx, sb)
	if err != nil || live == nil {
		return err
	}
	return live.SetPolicy(ctx, rules)
}
