package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/policy"
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
		RunE: func(_ *cobra.Command, args []string) error { return runPolicyExplain(e, o, args, asJSON) },
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
	Ancestor    string            `json:"ancestor,omitempty"` // escaped; the directory with which it is hidden
	Below       *int              `json:"below,omitempty"`    // the rule that may grant something below
	Matches     []ruleJSON        `json:"matches"`
}

func runPolicyExplain(e *env, o policySource, args []string, asJSON bool) error {
	p, err := o.compile(e, ".")
	if err != nil {
		return err
	}
	var docs []explanationJSON
	for _, arg := range args {
		path, err := workspacePath(arg)
		if err != nil {
			return err
		}
		x := p.Explain(path)
		if !asJSON {
			if err := printExplanation(e, p, x); err != nil {
				return err
			}
			continue
		}
		doc := explanationJSON{
			Path: vpath.Escape(string(path)), Permission: x.Decision.Permission,
			Traversable: x.Decision.Traversable, Reason: x.Decision.Reason, Matches: []ruleJSON{},
			Ancestor: x.Ancestor.String(),
		}
		if x.Below != policy.NoRule {
			doc.Below = &x.Below
		}
		for _, m := range x.Matches {
			doc.Matches = append(doc.Matches, ruleJSON{Index: m.Rule, Rule: p.Rules()[m.Rule], Why: m.Why})
		}
		docs = append(docs, doc)
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int               `json:"schema_version"`
			Paths         []explanationJSON `json:"paths"`
		}{schemaVersion, docs})
	}
	return nil
}

func printExplanation(e *env, p *policy.Policy, x policy.Explanation) error {
	d := x.Decision
	if _, err := fmt.Fprintf(e.stdout, "%s: %s\n  %s\n", x.Path, d.Permission, d.Reason); err != nil {
		return err
	}
	if x.Ancestor != "" {
		fmt.Fprintf(e.stdout, "  hidden with the directory %s, whose rule outranks what wins at the path itself:\n", x.Ancestor)
	}
	switch {
	case d.Traversable && x.Below != policy.NoRule:
		fmt.Fprintf(e.stdout, "  a directory here shows as view, listing only what is granted below it: %s\n", p.Rules()[x.Below])
	case d.Traversable:
		fmt.Fprintln(e.stdout, "  a directory here shows as view, listing only what is granted below it")
	}
	for _, m := range x.Matches {
		if _, err := fmt.Fprintf(e.stdout, "  - %s: %s\n", p.Rules()[m.Rule], m.Why); err != nil {
			return err
		}
	}
	return nil
}
