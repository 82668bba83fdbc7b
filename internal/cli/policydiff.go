package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/prove"
)

func newPolicyDiff(e *env) *cobra.Command {
	var format reportFormat
	var wider bool
	cmd := &cobra.Command{
		Use:   "diff [flags] A B",
		Short: "Show for which paths two policies differ",
		Long: `Show for which paths policy B permits more or less than policy A. The answer is
exact for every path, whether it exists or not: rules that are written differently
and mean the same do not differ. Each line has an example and the rule that makes the
difference. Whether a rule of none is strict is not compared.

A and B are each the name of a preset; a policy file, which ends in .yaml or .yml or
has a slash; "-" for a policy file on standard input; or the name of a sandbox. The
exit code is 1 if the policies differ.`,
		Example: `  agentfense policy diff agent-safe ./.agentfense.yaml
  git show main:.agentfense.yaml | agentfense policy diff --wider - ./.agentfense.yaml`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return runPolicyDiff(e, args[0], args[1], wider, format)
		},
	}
	cmd.Flags().BoolVar(&wider, "wider", false, "show only where B permits more, and exit with 1 only then")
	format.register(cmd)
	return cmd
}

type differenceJSON struct {
	Path   string            `json:"path"` // escaped; an example
	Wider  bool              `json:"wider"`
	From   policy.Permission `json:"from"`
	To     policy.Permission `json:"to"`
	Before string            `json:"before"` // reasons
	After  string            `json:"after"`
}

func runPolicyDiff(e *env, from, to string, wider bool, format reportFormat) error {
	if from == "-" && to == "-" {
		return usageError{errdefs.New(errdefs.Invalid, "policy diff: only one of A and B can be standard input")}
	}
	a, err := policyNamed(e, from)
	if err != nil {
		return err
	}
	b, err := policyNamed(e, to)
	if err != nil {
		return err
	}
	found, err := prove.Diff(a, b)
	if err != nil {
		return fmt.Errorf("policy diff: %w", err)
	}
	if wider {
		found = slices.DeleteFunc(found, func(d prove.Difference) bool { return !d.Widens() })
	}
	report := present.PolicyReport{Title: fmt.Sprintf("From %s to %s", vpath.Escape(from), vpath.Escape(to))}
	list := make([]differenceJSON, len(found))
	for i, d := range found {
		list[i] = differenceJSON{
			pathText(d.Path, d.Dir), d.Widens(), d.From(), d.To(), d.A.Reason, d.B.Reason,
		}
		report.Findings = append(report.Findings, findingOf(d, b))
	}
	if len(found) == 0 {
		report.Summary = "no difference"
		if wider {
			report.Summary = "nothing is wider"
		}
	}
	err = format.print(e, report, struct {
		SchemaVersion int              `json:"schema_version"`
		Differences   []differenceJSON `json:"differences"`
	}{schemaVersion, list})
	if err == nil && len(found) > 0 {
		return exitError(exitFailure)
	}
	return err
}

func findingOf(d prove.Difference, b *policy.Policy) present.PolicyFinding {
	f := present.PolicyFinding{
		Kind:   "narrower",
		Text:   fmt.Sprintf("%s: %s → %s", pathText(d.Path, d.Dir), d.From(), d.To()),
		Reason: fmt.Sprintf("%s; before: %s", d.B.Reason, d.A.Reason),
		Source: sourceOf(b, d.B.Rule),
	}
	if d.Widens() {
		f.Kind, f.Bad = "wider", true
	}
	switch {
	case d.Shown && d.B.Transform.IsZero():
		f.Reason = "files show their content now: " + d.B.Reason
	case d.Shown:
		f.Reason = fmt.Sprintf("files show other contents now (%s): %s", d.B.Transform, d.B.Reason)
	case d.Kept && d.Widens():
		f.Reason = "the end of a command applies changes now, without a review: " + d.B.Reason
	case d.Kept:
		f.Reason = "changes wait for a review now: " + d.B.Reason
	case d.Dir && d.Widens():
		f.Reason = "a directory there shows now, because a rule grants something below it"
	case d.Dir:
		f.Reason = "a directory there does not show any more, because no rule grants anything below it"
	}
	return f
}

// policyNamed is the policy that an argument of diff names.
func policyNamed(e *env, name string) (*policy.Policy, error) {
	rules, err := rulesNamed(e, name)
	if err != nil {
		return nil, err
	}
	return policy.Compile(rules, policy.Options{})
}

func rulesNamed(e *env, name string) ([]policy.Rule, error) {
	switch {
	case name == "-":
		content, err := io.ReadAll(io.LimitReader(e.stdin, policyfile.MaxBytes+1))
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "policy on standard input: %w", err)
		}
		if len(content) > policyfile.MaxBytes {
			return nil, errdefs.New(errdefs.Invalid, "policy on standard input: it has more than %d bytes", policyfile.MaxBytes)
		}
		_, rules, err := parsePolicy(content, "standard input")
		return rules, err
	case slices.Contains(allPresets(), name):
		return preset.Rules(name)
	case strings.Contains(name, "/") || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"):
		_, rules, err := loadPolicyFile(name, ".")
		return rules, err
	}
	if err := e.hereOnly("policy diff of a sandbox"); err != nil {
		return nil, err
	}
	_, sb, err := e.open(name)
	if err != nil {
		return nil, fmt.Errorf("%w; want the name of a preset or a sandbox, or a policy file (./FILE)", err)
	}
	return sb.Record().Rules, nil
}
