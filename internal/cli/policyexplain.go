package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func newPolicyExplain(e *env) *cobra.Command {
	var o policySource
	var mount string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [flags] PATH…",
		Short: "Show the permission of a path, and which rule decides it and why",
		Long: `Show the permission of each PATH, which need not exist. A PATH begins at the root
of the workspace, with or without a slash. It can also be a path of this host below
the source, or begin with ./ or ../. For an existing directory, the output also says
what the directory shows. Without a flag, the policy is the one that run would use
here: .agentfense.yaml, else agent-safe.

With --in MOUNT, the rules are those of a mount of the sandbox, and a PATH begins at the
root of the mount.`,
		Example: `  agentfense policy explain --preset development .env
  agentfense policy explain --sandbox fix src/main.go
  agentfense policy explain --sandbox fix --in home .claude/history.jsonl`,
		Args: cobra.MinimumNArgs(1),
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if mount != "" {
			if o.Sandbox == "" {
				return usageError{errdefs.New(errdefs.Invalid, "--in %s: the mount of which sandbox? Add --sandbox NAME", vpath.Escape(mount))}
			}
			return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
				return runExplainMount(ctx, e, b, o.Sandbox, mount, args, asJSON)
			})
		}
		if o.Sandbox == "" {
			if err := refuseFor(cmd, " without --sandbox"); err != nil {
				return err
			}
			return runExplainHere(cmd.Context(), e, o, args, asJSON)
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			return runPolicyExplain(ctx, e, b, o, args, asJSON)
		})
	}
	o.register(cmd, e)
	cmd.Flags().StringVar(&mount, "in", "", "the rules of this `MOUNT` of the sandbox, not those of the workspace")
	for _, flag := range []string{"write", "read", "view", "hide"} { // a mount has no such rules
		cmd.MarkFlagsMutuallyExclusive("in", flag)
	}
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
	Directory   bool              `json:"directory,omitempty"`   // it exists and is one
	transformJSON
	Matches []ruleJSON `json:"matches"`
}

// explained reads paths of the command line for a source, "" if it is not here.
// One that cannot be is in the error, and the others are returned.
func explained(source string, args []string) ([]vpath.Path, error) {
	var paths []vpath.Path
	var errs []error
	for _, arg := range args {
		path, err := workspacePath(insideSource(source, arg))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		paths = append(paths, path)
	}
	return paths, errors.Join(errs...)
}

// insideSource returns a path of this host below source as the workspace has it,
// and any other as it is. A relative path is one of this host only if it says so
// by ./ or ../.
func insideSource(source, arg string) string {
	local := strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../")
	if source == "" || arg == "" || !local && !filepath.IsAbs(arg) {
		return arg
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return arg
	}
	candidates := []string{abs}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		candidates = append(candidates, filepath.Join(dir, filepath.Base(abs)))
	}
	for _, c := range candidates {
		if rel, err := filepath.Rel(source, c); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return arg
}

// runExplainHere explains the policy that run would use in the current directory.
func runExplainHere(ctx context.Context, e *env, o policySource, args []string, asJSON bool) error {
	dir, err := realPath(".")
	if err != nil {
		return errdefs.New(errdefs.NotFound, "policy explain: %w", err)
	}
	paths, bad := explained(dir, args)
	p, err := o.compile(e, ".")
	if err != nil {
		return err
	}
	found, err := local.ExplainIn(ctx, dir, p, paths)
	if err != nil {
		return err
	}
	return errors.Join(e.printExplanations(found, asJSON), bad)
}

// runPolicyExplain explains the policy of a sandbox.
func runPolicyExplain(ctx context.Context, e *env, b backend.Backend, o policySource, args []string, asJSON bool) error {
	has, err := b.Policy(ctx, o.Sandbox)
	if err != nil {
		return err
	}
	extra, err := o.flagRules(e, has.IsDir)
	if err != nil {
		return err
	}
	paths, bad := explained(string(has.Record.Source.Path), args)
	found, err := b.Explain(ctx, has.Ref(), extra, paths)
	if err != nil {
		return err
	}
	return errors.Join(e.printExplanations(found, asJSON), bad)
}

// runExplainMount explains the rules of a mount.
func runExplainMount(ctx context.Context, e *env, b backend.Backend, name, mount string, args []string, asJSON bool) error {
	paths, bad := explained("", args)
	found, err := b.ExplainMount(ctx, name, mount, paths)
	if err != nil {
		return err
	}
	return errors.Join(e.printExplanations(found, asJSON), bad)
}

func (e *env) printExplanations(found backend.Explained, asJSON bool) error {
	docs := []explanationJSON{}
	for _, x := range found.Paths {
		if !asJSON {
			if err := printExplanation(e, found.Rules, x); err != nil {
				return err
			}
			continue
		}
		doc := explanationJSON{
			Path: vpath.Escape(string(x.Path)), Permission: x.Decision.Permission,
			Traversable: x.Decision.Traversable, Reason: x.Decision.Reason, Matches: []ruleJSON{},
			Ancestor: x.Ancestor.String(), Directory: x.IsDir, transformJSON: transformJSONOf(x.Path, x.Decision),
		}
		if x.Below != policy.NoRule {
			doc.Below = &x.Below
		}
		for _, m := range x.Matches {
			doc.Matches = append(doc.Matches, ruleJSON{Index: m.Rule, Rule: found.Rules[m.Rule], Why: m.Why})
		}
		docs = append(docs, doc)
	}
	if !asJSON {
		return printTracked(e.stdout, found.Tracked)
	}
	return e.printJSON(struct {
		SchemaVersion int               `json:"schema_version"`
		Paths         []explanationJSON `json:"paths"`
		Tracked       *trackedJSON      `json:"tracked,omitempty"`
	}{schemaVersion, docs, trackedJSONOf(found.Tracked)})
}

// ruleNote says what else the deciding rule means; "" for nothing.
func ruleNote(rules []policy.Rule, d policy.Decision) string {
	switch {
	case d.Rule == policy.NoRule:
		return ""
	case d.Permission == policy.Write && rules[d.Rule].Keep:
		return "the end of a command applies it without a review, unless it is marked, executable or no regular file" + keysNote(rules[d.Rule])
	case d.Permission != policy.None:
		return ""
	case rules[d.Rule].Own:
		return "the rule allows own entries: a command that may write the directory can create one here; apply never takes it"
	}
	return "the rule is strict: nothing can be created here"
}

func printExplanation(e *env, rules []policy.Rule, x backend.ExplainedPath) error {
	d := x.Decision
	if _, err := fmt.Fprintf(e.stdout, "%s: %s\n  %s\n", x.Path, d.Permission, present.LocalUntil(d.Reason)); err != nil {
		return err
	}
	if note := explainShown(rules, x); note != "" {
		fmt.Fprintf(e.stdout, "  %s\n", note)
	}
	if x.Ancestor != "" {
		fmt.Fprintf(e.stdout, "  hidden with the directory %s: the rule that hides it ranks higher than the rule that wins at the path itself:\n", x.Ancestor)
	}
	switch {
	case x.IsDir && !d.Traversable && d.Permission != policy.None:
		fmt.Fprintln(e.stdout, "  it is a directory; what is in it has decisions of its own: agentfense policy tree")
	case d.Traversable && x.Below != policy.NoRule:
		fmt.Fprintf(e.stdout, "  a directory here shows as view, listing only what is granted below it: %s\n", present.LocalUntil(rules[x.Below].String()))
	case d.Traversable:
		fmt.Fprintln(e.stdout, "  a directory here shows as view, listing only what is granted below it")
	}
	for _, m := range x.Matches {
		if _, err := fmt.Fprintf(e.stdout, "  - %s: %s\n", present.LocalUntil(rules[m.Rule].String()), m.Why); err != nil {
			return err
		}
	}
	return nil
}

// explainShown says what the path shows in place of a content, else what the deciding rule means.
func explainShown(rules []policy.Rule, x backend.ExplainedPath) string {
	if !x.Decision.Transform.IsZero() && !x.IsDir {
		return transformText(x.Path, x.Decision)
	}
	return ruleNote(rules, x.Decision)
}
