package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/advise"
)

// setFlags are those that say what the new policy is.
var setFlags = []string{"preset", "policy", "write", "read", "view", "hide"}

func newPolicySet(e *env) *cobra.Command {
	var o policySource
	cmd := &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Replace or widen the policy of a sandbox, of a running one at once",
		Long: `Replace the policy of a sandbox by a preset or a file, with the rules of flags; or,
without --preset and --policy, add the rules of flags to those that it has. When
this returns, a running sandbox uses only the new policy. Changes that it made before
stay. The audit log keeps the new rules.`,
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
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			return runPolicySet(ctx, e, cmd, b, args[0], o, isWhole)
		})
	}
	return cmd
}

// changedNote ends what is said of a policy to which rules were added.
const changedNote = ", changed by policy set"

// added returns the rules that a sandbox has with those of the flags. source is its directory on
// this host, "" for none.
func (o *policySource) added(e *env, has []policy.Rule, isDir func(string) bool, source string) ([]policy.Rule, error) {
	extra, err := o.flagRules(e, isDir)
	if err == nil {
		err = notOnHost(extra, source)
	}
	if err != nil {
		return nil, err
	}
	rules := slices.Clone(has)
	for _, r := range extra {
		rules = advise.Replace(rules, r)
	}
	return rules, nil
}

func runPolicySet(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, name string, o policySource, isWhole bool) error {
	has, err := b.Policy(ctx, name)
	if err != nil {
		return err
	}
	r, source := has.Record, string(has.Record.Source.Path)
	next, err := o.next(e, has, isWhole)
	if err != nil {
		return err
	}
	next.Reason = "policy set"
	if r.Served != nil {
		o.sayNoMarks(e)
	}
	if err := o.checkFileLimits(cmd, r); err != nil {
		return err
	}
	if err := b.SetPolicy(ctx, has.Ref(), next); err != nil {
		return err
	}
	if err := o.changeToFileNetwork(ctx, e, cmd, b, has.Sandbox, next.Reason); err != nil {
		return err
	}
	_, err = o.changeToFileScratch(ctx, b, has.Sandbox, backend.Reopening{Dir: source})
	return err
}

// next returns the policy that a sandbox is to have: with isWhole that of the preset or the file of
// the flags, else its own with the rules of the flags.
func (o *policySource) next(e *env, has backend.Policy, isWhole bool) (next backend.Rules, err error) {
	r, source := has.Record, string(has.Record.Source.Path)
	if isWhole {
		next.Rules, next.Note, err = o.rules(e, nil, source, has.IsDir)
	} else {
		o.marks, next.Note = r.Marks, strings.TrimSuffix(r.PolicyNote, changedNote)+changedNote
		next.Rules, err = o.added(e, r.Rules, has.IsDir, source)
	}
	if err == nil {
		err = o.sayWarnings(e, next.Rules)
	}
	next.Marks = o.marks
	return next, err
}

// sayNoMarks says that a server does not know the marks of a policy file.
func (o *sandboxOptions) sayNoMarks(e *env) {
	if len(o.marks) > 0 {
		e.say("the %s of the policy file: ignored; a server knows only the built-in marks", plural(len(o.marks), "mark"))
	}
}
