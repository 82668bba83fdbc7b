package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// setFlags are those that say what the new policy is.
var setFlags = []string{"preset", "policy", "write", "read", "view", "hide"}

func newPolicySet(e *env) *cobra.Command {
	var o policySource
	cmd := &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Replace or widen the policy of a sandbox, of a running one at once",
		Long: `Replace the policy of a sandbox by a preset or a file, with the rules of flags; or,
without --preset and --policy, add the rules of flags to those that it has. Of a
running sandbox nothing is answered by the old one when this returns; what the
sandbox changed before stays. The audit log keeps the new rules.`,
		Example: `  agentfense policy set fix --preset read-only
  agentfense policy set fix --policy policy.yaml --hide '*.sqlite'
  agentfense policy set fix --write build/`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	o.registerRules(cmd)
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !changed(cmd, setFlags) {
			return usageError{errdefs.New(errdefs.Invalid, "policy set: --preset or --policy is missing, or a rule to add, such as --write PATTERN")}
		}
		isWhole := changed(cmd, []string{"preset", "policy"})
		return e.dispatch(cmd,
			func() error { return runPolicySet(cmd.Context(), e, args[0], o, isWhole) },
			func(ctx context.Context, s backend.Server) error {
				sb, err := s.Sandbox(ctx, args[0])
				if err != nil {
					return err
				}
				var rules []policy.Rule
				if isWhole {
					rules, err = o.serverRules(ctx, e, s, sb.Record.Served.CodebaseID)
				} else if rules, err = o.added(e, sb.Record.Rules, isDirOfCodebase(ctx, s, sb.Record.Served.CodebaseID), ""); err == nil {
					err = o.sayWarnings(e, rules)
				}
				if err != nil {
					return err
				}
				return e.setServerPolicy(ctx, s, sb, rules)
			}, setFlags...)
	}
	return cmd
}

// changedNote ends what is said of a policy to which rules were added.
const changedNote = ", changed by policy set"

// added returns the rules that a sandbox has with those of the flags. source is its directory on
// this host, "" for none.
func (o *policySource) added(e *env, has []policy.Rule, isDir func(string) bool, source string) ([]policy.Rule, error) {
	extra, err := o.flagRules(e, isDir)
	if err == nil && source != "" {
		err = notOnHost(extra, source)
	}
	if err != nil {
		return nil, err
	}
	rules := slices.Clone(has)
	for _, r := range extra {
		rules = policy.Replace(rules, r)
	}
	return rules, nil
}

func runPolicySet(ctx context.Context, e *env, name string, o policySource, isWhole bool) error {
	home, sb, err := e.open(name)
	if err != nil {
		return err
	}
	if sb.Record().Served != nil {
		return errdefs.New(errdefs.Precondition, "sandbox %s: managed by a server: run agentfense policy set %[1]s --endpoint URL …", sb.Name())
	}
	r := sb.Record()
	var rules []policy.Rule
	var note string
	if isWhole {
		rules, note, err = o.rules(e, home, string(r.Source.Path))
	} else {
		o.marks, note = r.Marks, strings.TrimSuffix(r.PolicyNote, changedNote)+changedNote
		rules, err = o.added(e, r.Rules, isDirBelow(string(r.Source.Path)), string(r.Source.Path))
	}
	if err == nil {
		err = o.sayWarnings(e, rules)
	}
	if err != nil {
		return err
	}
	if _, err := policy.Compile(rules, policy.Options{}); err != nil {
		return err
	}
	if err := sb.ReplaceRules(rules, note, "policy set", func(r *record.Record) { r.Marks = o.marks }); err != nil {
		return err
	}
	live, err := client(ctx, sb)
	if err != nil || live == nil {
		return err
	}
	return live.SetPolicy(ctx, rules)
}
