package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/secretscan"
)

func newPolicyScan(e *env) *cobra.Command {
	var o policySource
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "scan [DIR]",
		Short: "Look for secrets in a directory and propose rules that hide them",
		Long: `Look for secrets in a directory (default: the current one): by the names of files
and by what is in them, which is a private key, a token of a known shape or a random
value of a variable for a secret. Each is listed with what the policy says of it,
and rules are proposed for those that can be read. The policy is the one that run
would use here, unless a flag names another. A secret itself is never printed.

It reads at most the first 256 KiB of a file, does not follow links, and leaves out
lock files and the directories of packages and of git. It does not find everything.`,
		Example: `  agentfense policy scan
  agentfense policy scan --preset development ~/src/shop
  agentfense policy scan --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return runPolicyScan(cmd.Context(), e, o, dir, asJSON)
		},
	}
	o.registerRules(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

type scannedJSON struct {
	Path       string            `json:"path"`           // escaped
	Line       int               `json:"line,omitempty"` // of content
	Kind       secretscan.Kind   `json:"kind"`
	Reason     string            `json:"reason"`
	Permission policy.Permission `json:"permission"` // by the policy, without the proposed rules
}

func runPolicyScan(ctx context.Context, e *env, o policySource, dir string, asJSON bool) error {
	source, err := realPath(dir)
	if err != nil {
		return errdefs.New(errdefs.NotFound, "policy scan: %w", err)
	}
	p, err := o.compile(e, source)
	if err != nil {
		return err
	}
	result, err := secretscan.Scan(ctx, source)
	if err != nil {
		return err
	}
	list := []scannedJSON{}
	proposed := []policy.Rule{}
	for _, f := range result.Findings {
		permission := p.Decide(f.Path).Permission
		list = append(list, scannedJSON{f.Path.String(), f.Line, f.Kind, f.Reason, permission})
		if permission >= policy.Read {
			proposed = append(proposed, policy.Rule{
				Pattern: string(f.Path), Permission: policy.None, Type: policy.File, Priority: preset.SecretPriority,
			})
		}
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int           `json:"schema_version"`
			Files         int           `json:"files"`
			Partial       bool          `json:"partial"` // not every file was looked at
			Findings      []scannedJSON `json:"findings"`
			Rules         []policy.Rule `json:"rules"` // proposed
		}{schemaVersion, result.Files, result.Partial, list, proposed})
	}
	return e.printScan(result, list, proposed)
}

func (e *env) printScan(result secretscan.Result, list []scannedJSON, proposed []policy.Rule) error {
	for _, f := range list {
		at := f.Path
		if f.Line > 0 {
			at += fmt.Sprintf(":%d", f.Line)
		}
		if _, err := fmt.Fprintf(e.stdout, "%-5s  %s: %s\n", f.Permission, at, f.Reason); err != nil {
			return err
		}
	}
	if result.Partial {
		e.say("policy scan: only the first %d files were looked at", secretscan.MaxFiles)
	}
	e.say("%s looked at, %s with secrets, %d of them readable", plural(result.Files, "file"), plural(len(list), "place"), len(proposed))
	if len(proposed) == 0 {
		return nil
	}
	e.say("to hide what is readable, add these rules to %s:", vpath.Escape(policy.ProjectFile.Rel()))
	for _, r := range proposed {
		if _, err := fmt.Fprintf(e.stdout, "  - {pattern: %s, type: file, permission: none, priority: %d}\n", vpath.Quote(r.Pattern), r.Priority); err != nil {
			return err
		}
	}
	return nil
}
