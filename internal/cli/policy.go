package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

func newPolicy(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, explain, start and replace policies",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheck(e), newPolicyExplain(e), newPolicyTree(e), newPolicySet(e), newPolicyGrant(e), newPolicyRevoke(e), newPolicyAsk(e), newPolicyPresets(e), newPolicyInit(e), newPolicyTest(e), newPolicyScan(e), newPolicyProve(e), newPolicyDiff(e))
	return cmd
}

// policySource are the flags that name a policy to look at.
type policySource struct {
	sandboxOptions
	Sandbox string
}

func (o *policySource) register(cmd *cobra.Command, e *env) {
	o.registerRules(cmd)
	cmd.Flags().StringVar(&o.Sandbox, "sandbox", "", "the policy of a sandbox")
	cmd.MarkFlagsMutuallyExclusive("preset", "sandbox")
	cmd.MarkFlagsMutuallyExclusive("policy", "sandbox")
	cmd.RegisterFlagCompletionFunc("sandbox", e.completeNames)
}

// registerRules adds the flags that name rules.
func (o *policySource) registerRules(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Preset, "preset", "", "use the policy of the preset `NAME`")
	f.StringVar(&o.Policy, "policy", "", "use the policy in `FILE`")
	f.StringArrayVar(&o.Write, "write", nil, "add a rule for `PATTERN` as run --write does")
	f.StringArrayVar(&o.Read, "read", nil, "add a rule for `PATTERN` as run --read does")
	f.StringArrayVar(&o.View, "view", nil, "add a rule for `PATTERN` as run --view does")
	f.StringArrayVar(&o.Hide, "hide", nil, "add a rule for `PATTERN` as run --hide does")
	cmd.MarkFlagsMutuallyExclusive("preset", "policy")
	cmd.RegisterFlagCompletionFunc("preset", cobra.FixedCompletions(allPresets(), cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagFilename("policy", "yaml", "yml")
}

// compile returns the policy that the flags name; by default the one that
// `run` would use in dir.
func (o *policySource) compile(e *env, dir string) (*policy.Policy, error) {
	rules, err := o.rulesFor(e, dir)
	if err != nil {
		return nil, err
	}
	reserved, err := o.reserved(e, dir)
	if err != nil {
		return nil, err
	}
	return policy.Compile(rules, policy.Options{Reserved: reserved})
}

// reserved are the paths of the state directory. Where there is none, nothing
// is to be kept from a sandbox.
func (o *policySource) reserved(e *env, dir string) ([]vpath.Path, error) {
	if o.Sandbox != "" {
		home, sb, err := e.open(o.Sandbox)
		if err != nil {
			return nil, err
		}
		return home.Reserved(sb.Record().Source)
	}
	home, err := e.openHome()
	if err != nil {
		return nil, nil //nolint:nilerr // looking at a policy needs no state
	}
	source, err := home.ResolveSource(dir)
	if err != nil {
		return nil, err
	}
	return home.Reserved(source)
}

func (o *policySource) rulesFor(e *env, dir string) ([]policy.Rule, error) {
	if o.Sandbox != "" {
		_, sb, err := e.open(o.Sandbox)
		if err != nil {
			return nil, err
		}
		extra, err := o.flagRules(e, local.IsDirBelow(string(sb.Record().Source.Path)))
		return append(sb.Record().Rules, extra...), err
	}
	dir, err := realPath(dir)
	if err != nil {
		return nil, errdefs.New(errdefs.NotFound, "source: %w", err)
	}
	if o.Policy == "" && o.Preset == "" {
		found, err := projectDir(dir)
		if err != nil {
			return nil, err
		}
		if found != "" {
			o.Policy, o.isProjects = projectFileIn(found), true // looking at it needs no consent
		}
	}
	rules, _, err := o.rules(e, nil, dir, local.IsDirBelow(dir))
	return rules, err
}

// allPresets are the names that --preset takes.
func allPresets() []string {
	return slices.Concat(preset.Names(), preset.FirstNames())
}

func projectFileIn(dir string) string { return dir + string(policy.ProjectFile) }

// workspacePath reads a path of the command line: absolute inside the
// workspace, or relative to its root.
func workspacePath(s string) (vpath.Path, error) {
	p, err := vpath.Parse(s)
	if err != nil {
		return "", usageError{errdefs.New(errdefs.Invalid, "%w", err)}
	}
	return p, nil
}

// ruleJSON is a rule in a JSON document.
type ruleJSON struct {
	Index int         `json:"rule_index"`
	Rule  policy.Rule `json:"rule"`
	Why   string      `json:"why,omitempty"`
}

//go:generate go test -run ^TestThePythonPackageHasTheSameWordsAndPresets$ . -update

func newPolicyPresets(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "presets [NAME]",
		Short: "List the presets, or the rules of one",
		Long: `List the presets, or the rules of one. A preset whose name ends in @v1 has the
rules that it had in agentfense 0.3.0. A rule with !(a|*b) in it takes any text
but exactly "a" and what ends in "b"; it is shorter than what the policy holds,
which --json prints.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(allPresets(), cobra.ShellCompDirectiveNoFileComp),
		Example: `  agentfense policy presets
  agentfense policy presets agent-safe`,
		RunE: func(_ *cobra.Command, args []string) error { return runPolicyPresets(e, args, asJSON) },
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

type presetJSON struct {
	Name    string        `json:"name"`
	Summary string        `json:"summary"`
	Rules   []policy.Rule `json:"rules"`
}

func runPolicyPresets(e *env, args []string, asJSON bool) error {
	wanted := allPresets()
	if len(args) > 0 {
		wanted = args
	}
	var presets []presetJSON
	for _, name := range wanted {
		rules, err := preset.Rules(name)
		if err != nil {
			return err
		}
		presets = append(presets, presetJSON{Name: name, Summary: preset.Summary(name), Rules: rules})
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int          `json:"schema_version"`
			Presets       []presetJSON `json:"presets"`
		}{schemaVersion, presets})
	}
	var rows [][]string
	for _, p := range presets {
		if len(args) == 0 {
			rows = append(rows, []string{p.Name, p.Summary})
			continue
		}
		for _, r := range p.Rules {
			rows = append(rows, []string{vpath.Escape(secretname.Written(r.Pattern)), r.Permission.String(), fmt.Sprintf("priority %d", r.Priority)})
		}
	}
	return printRows(e.stdout, rows)
}
