package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/prove"
)

func newPolicyProve(e *env) *cobra.Command {
	var o policySource
	var format reportFormat
	cmd := &cobra.Command{
		Use:   "prove [flags] ASSERTION…",
		Short: "Check for every path that a policy does what an assertion says",
		Long: `Check that a policy does what each ASSERTION says for every path that its pattern
matches, whether the path exists or not. An ASSERTION is "PERMISSION PATTERN", such
as "none **/*.pem". "at-most PERMISSION PATTERN" and "at-least PERMISSION PATTERN"
set one bound. The answer is exact. If an assertion does not hold, the output names
a path and the rule that decides there, and the exit code is 1. A directory that
shows because something below it is granted has the permission view. Without a
flag, the policy is the one that run would use here.`,
		Example: `  agentfense policy prove 'none **/.env' 'at-most read /docs/**'
  agentfense policy prove --policy policy.yaml --format sarif 'none *.key'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return runPolicyProve(e, o, args, format) },
	}
	o.register(cmd, e)
	format.register(cmd)
	return cmd
}

type proofJSON struct {
	Assertion string             `json:"assertion"`
	Holds     bool               `json:"holds"`
	Path      string             `json:"path,omitempty"` // escaped; a counterexample
	Got       *policy.Permission `json:"got,omitempty"`
	Reason    string             `json:"reason,omitempty"`
}

func runPolicyProve(e *env, o policySource, texts []string, format reportFormat) error {
	assertions := make([]prove.Assertion, len(texts))
	for i, text := range texts {
		var err error
		if assertions[i], err = prove.Parse(text); err != nil {
			return usageError{err}
		}
	}
	if o.Sandbox != "" {
		if err := e.hereOnly("policy prove --sandbox"); err != nil {
			return err
		}
	}
	p, err := o.compile(e, ".")
	if err != nil {
		return err
	}
	report := present.PolicyReport{Title: "Assertions that do not hold"}
	list := make([]proofJSON, len(texts))
	failed := 0
	for i, a := range assertions {
		c, holds, err := prove.Holds(p, a)
		if err != nil {
			return fmt.Errorf("policy prove: %s: %w", vpath.Quote(texts[i]), err)
		}
		list[i] = proofJSON{Assertion: texts[i], Holds: holds}
		line := present.PolicyFinding{Kind: "holds", Text: vpath.Escape(texts[i])}
		if !holds {
			failed++
			got := c.Got()
			list[i].Path, list[i].Got, list[i].Reason = pathText(c.Path, c.Dir), &got, reasonOf(c)
			line = present.PolicyFinding{
				Kind: "does not hold", Text: fmt.Sprintf("%s: %s is %s", vpath.Escape(texts[i]), list[i].Path, got),
				Reason: reasonOf(c), Bad: true, Source: sourceOf(p, c.Decision.Rule),
			}
		}
		report.Findings = append(report.Findings, line)
	}
	err = format.print(e, report, struct {
		SchemaVersion int         `json:"schema_version"`
		Failed        int         `json:"failed"`
		Assertions    []proofJSON `json:"assertions"`
	}{schemaVersion, failed, list})
	if err == nil && failed > 0 {
		return exitError(exitFailure)
	}
	return err
}

// reasonOf says why a path has the permission that it should not have.
func reasonOf(c prove.Counterexample) string {
	if c.Dir {
		return "a directory there shows, because a rule grants something below it"
	}
	return c.Decision.Reason
}

// pathText is path as people see it, a directory with a slash at its end.
func pathText(path vpath.Path, dir bool) string {
	text := path.String()
	if dir && !path.IsRoot() {
		text += "/"
	}
	return text
}

// sourceOf is the source of the rule that decides, "" for none.
func sourceOf(p *policy.Policy, rule int) string {
	if rule == policy.NoRule {
		return ""
	}
	return p.Rule(rule).Source
}
