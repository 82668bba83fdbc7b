package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

func newPolicyExplain(e *env) *cobra.Command {
	var o policySource
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [flags] PATH…",
		Short: "Tell what a policy says of a path, by which rule and why",
		Long: `Tell what a policy says of each path, which need not exist. Without a flag it is
the policy that run would use here: .agentfense.yaml, else agent-safe.`,
		Example: `  agentfense policy explain --preset development .env
  agentfense policy explain --sandbox fix src/main.go`,
		Args: cobra.MinimumNArgs(1),
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		paths, err := workspacePaths(args)
		if err != nil {
			return err
		}
		here := func() error { return runPolicyExplain(cmd.Context(), e, o, paths, asJSON) }
		if o.Sandbox == "" {
			if err := refuseFor(cmd, "without --sandbox"); err != nil {
				return err
			}
			return here()
		}
		return e.either(cmd, here, func(ctx context.Context, s control.Server) error {
			return runServerExplain(ctx, e, s, o.Sandbox, paths, asJSON)
		}, "sandbox", "json")
	}
	o.register(cmd, e)
	jsonFlag(cmd, &asJSON)
	return cmd
}

type explanationJSON struct {
	Path        string            `json:"path"` // escaped
	Permission  policy.Permission `json:"permission"`
	Traversable bool              `json:"traversable"`
	Reason      string            `json:"reason"`
	Ancestor    string            `json:"ancestor,omitempty"`    // escaped; the directory with which it is hidden
	Below       *int              `json:"below_index,omitempty"` // the rule that may grant something below
	Matches     []ruleJSON        `json:"matches"`
}

func runPolicyExplain(ctx context.Context, e *env, o policySource, paths []vpath.Path, asJSON bool) error {
	p, err := o.compile(e, ".")
	if err != nil {
		return err
	}
	var found []policy.Explanation
	for _, path := range paths {
		found = append(found, p.Explain(path))
	}
	tracked, err := o.lookAtGit(ctx, e, p)
	if err != nil {
		return err
	}
	return e.printExplanations(found, p.Rules(), tracked, asJSON)
}

// lookAtGit looks at the repository of the workspace that the policy is for.
func (o *policySource) lookAtGit(ctx context.Context, e *env, p *policy.Policy) (sandbox.Tracked, error) {
	dir := "."
	if o.Sandbox != "" {
		_, sb, err := e.open(o.Sandbox)
		if err != nil {
			return sandbox.Tracked{}, err
		}
		dir = string(sb.Record().Source.Path)
	}
	return lookAtGit(ctx, dir, p)
}

// runServerExplain asks a server about the policy of a sandbox.
func runServerExplain(ctx context.Context, e *env, s control.Server, name string, paths []vpath.Path, asJSON bool) error {
	sb, err := s.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	var found []policy.Explanation
	for _, path := range paths {
		x, err := s.Explain(ctx, sb, path)
		if err != nil {
			return err
		}
		found = append(found, x)
	}
	return e.printExplanations(found, sb.Record.Rules, sandbox.Tracked{}, asJSON)
}

func (e *env) printExplanations(found []policy.Explanation, rules []policy.Rule, tracked sandbox.Tracked, asJSON bool) error {
	docs := []explanationJSON{}
	for _, x := range found {
		if !asJSON {
			if err := printExplanation(e, rules, x); err != nil {
				return err
			}
			continue
		}
		doc := explanationJSON{
			Path: vpath.Escape(string(x.Path)), Permission: x.Decision.Permission,
			Traversable: x.Decision.Traversable, Reason: x.Decision.Reason, Matches: []ruleJSON{},
			Ancestor: x.Ancestor.String(),
		}
		if x.Below != policy.NoRule {
			doc.Below = &x.Below
		}
		for _, m := range x.Matches {
			doc.Matches = append(doc.Matches, ruleJSON{Index: m.Rule, Rule: rules[m.Rule], Why: m.Why})
		}
		docs = append(docs, doc)
	}
	if !asJSON {
		return printTracked(e.stdout, tracked)
	}
	return e.printJSON(struct {
		SchemaVersion int               `json:"schema_version"`
		Paths         []explanationJSON `json:"paths"`
		Tracked       *trackedJSON      `json:"tracked,omitempty"`
	}{schemaVersion, docs, trackedJSONOf(tracked)})
}

func printExplanation(e *env, rules []policy.Rule, x policy.Explanation) error {
	d := x.Decision
	if _, err := fmt.Fprintf(e.stdout, "%s: %s\n  %s\n", x.Path, d.Permission, d.Reason); err != nil {
		return err
	}
	if x.Ancestor != "" {
		fmt.Fprintf(e.stdout, "  hidden with the directory %s, whose rule outranks what wins at the path itself:\n", x.Ancestor)
	}
	switch {
	case d.Traversable && x.Below != policy.NoRule:
		fmt.Fprintf(e.stdout, "  a directory here shows as view, listing only what is granted below it: %s\n", rules[x.Below])
	case d.Traversable:
		fmt.Fprintln(e.stdout, "  a directory here shows as view, listing only what is granted below it")
	}
	for _, m := range x.Matches {
		if _, err := fmt.Fprintf(e.stdout, "  - %s: %s\n", rules[m.Rule], m.Why); err != nil {
			return err
		}
	}
	return nil
}
