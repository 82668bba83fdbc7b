package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

type applyOptions struct {
	DryRun   bool
	JSON     bool
	Reviewed string
	Latest   bool
	To       string
	Rebase   bool
	Verbose  bool
}

func newApply(e *env) *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply NAME [PATH…]",
		Short: "Bring a sandbox's changes into its source",
		Long: `Bring a sandbox's changes, or those at and below the given paths, into its source.
What is applied is what was shown to you last, by diff or by the summary after
run. What changed since is left out, named, and stays in the sandbox; the exit
code is then 3. --latest takes what is there now.

Every path is checked first: if the source at one of them has changed since the
sandbox saw it, nothing is applied and the paths are named. Each file is then
replaced whole, and leaves the delta once the source holds it. What changed in a
.git directory is applied as a whole or not at all.

--to applies the changes to another directory with the same checks: what is there
must be what the sandbox saw, by content. The changes stay in the sandbox. If the
source was deleted and made again, --rebase takes the directory that is there now.`,
		Example: `  agentfense apply fix --dry-run
  agentfense apply fix
  agentfense apply fix --latest
  agentfense apply fix src/main.go docs
  agentfense apply fix --to ../copy`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	cmd.RunE = onChanges(e, &o, runApply, runServerApply, "dry-run", "json", "reviewed", "latest", "verbose")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().StringVar(&o.Reviewed, "reviewed", "", "apply what diff showed with this `DIGEST`")
	cmd.Flags().BoolVar(&o.Latest, "latest", false, "apply what is there now, shown or not")
	cmd.MarkFlagsMutuallyExclusive("reviewed", "latest")
	cmd.Flags().StringVar(&o.To, "to", "", "apply to this `DIR` instead of the source; the changes stay in the sandbox")
	rebaseFlag(cmd, &o.Rebase)
	cmd.MarkFlagsMutuallyExclusive("to", "rebase")
	cmd.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "list each path, also those in a group and, if a path stops the apply, the others")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

func runApply(ctx context.Context, e *env, name string, paths []vpath.Path, o applyOptions) error {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	if done, err := e.asOwner(ctx, sb, e.args); done || err != nil {
		return err
	}
	options := apply.Options{Paths: paths, DryRun: o.DryRun, Reviewed: o.Reviewed}
	if o.To == "" {
		err = e.settleSource(ctx, sb, o.Rebase)
	} else {
		options.To, err = apply.ResolveTarget(sb, o.To)
	}
	if err != nil {
		return err
	}
	if options.Reviewed == "" && !o.Latest {
		if options.Reviewed, err = manifest.LastShown(sb); err != nil {
			return err
		}
		options.AtStart = options.Reviewed == ""
	}
	result, err := applyWith(ctx, sb, options, e.progressUnless(o.JSON, "applying"))
	err = e.tellApplied(sb.Name(), result, err, o)
	if options.To != nil && !o.DryRun && result.Count(apply.Applied) > 0 {
		e.say("the changes are in %s now and still in the sandbox", options.To.Path)
	}
	return err
}

// runServerApply brings changes into the directory that was uploaded, or else into
// the codebase of the server.
func runServerApply(ctx context.Context, e *env, s backend.Server, name string, paths []vpath.Path, o applyOptions) error {
	sb, err := s.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	p := e.progressUnless(o.JSON, "applying")
	defer p.stop()
	take, err := e.reviewedOnServer(ctx, s, sb, paths, o)
	if err != nil {
		return err
	}
	review, err := s.Review(ctx, sb, paths, true, "")
	if err != nil {
		return err
	}
	result, err := e.applyOnServer(ctx, s, sb, paths, o.DryRun, take, p)
	p.stop()
	showAs(review, &result)
	if err = e.tellApplied(sb.Record.Name, result, err, o); err == nil && len(result.Paths) == 0 && !o.JSON {
		err = e.saySynced(ctx, s, sb)
	}
	return err
}

// showAs adds to a result how a review shows its paths, which a server's apply does
// not say.
func showAs(r *review.Review, result *apply.Result) {
	files := map[vpath.Path]review.FileDiff{}
	for _, f := range r.Files() {
		files[f.Path] = f
	}
	for i := range result.Paths {
		p := &result.Paths[i]
		f := files[p.Path]
		p.Mark, p.Group, p.RenamedFrom, p.RenamedTo = cmp.Or(p.Mark, f.Mark), f.Group, f.RenamedFrom, f.RenamedTo
	}
	result.Groups = r.Groups()
}

// tellApplied says how an apply went, which err says too.
func (e *env) tellApplied(name string, result apply.Result, err error, o applyOptions) error {
	leftOut := result.Count(apply.ChangedSinceReview)
	if err == nil && leftOut > 0 {
		err = exitError(exitLeftOut)
	}
	if o.JSON {
		if printErr := e.printJSON(applyDocument(result, o.DryRun)); err == nil {
			err = printErr
		}
		return err
	}
	if printErr := e.printApplied(result, o.Verbose); err == nil {
		err = printErr
	}
	switch n := result.Count(apply.Applied); {
	case result.Count(apply.Conflict) > 0:
		e.say("to look at a conflict: agentfense diff %[1]s PATH · to apply the other paths, name them · to drop a conflict: agentfense discard %[1]s PATH", name)
	case err != nil && n == 0 && leftOut == 0:
	case o.DryRun:
		e.say("would apply %s", plural(n, "change"))
	default:
		e.say("applied %s", plural(n, "change"))
	}
	e.sayLeftOut(name, leftOut)
	return err
}

// sayLeftOut says what to do about what had changed since it was shown.
func (e *env) sayLeftOut(name string, n int) {
	if n > 0 {
		e.say("left out %s, changed since shown; to see the current state: agentfense diff %[2]s · to apply it: agentfense apply %[2]s --latest", plural(n, "path"), name)
	}
}

// applyWith brings changes into the source; a live supervisor is told which
// entries of the delta it can forget. Progress is shown on p, which is stopped.
func applyWith(ctx context.Context, sb *record.Sandbox, o apply.Options, p *progress) (result apply.Result, err error) {
	defer p.stop()
	if record := sb.Record(); record.IsUploaded() && !o.DryRun && o.To == nil {
		return result, errdefs.New(errdefs.Precondition, "sandbox %s: codebase %s is managed by a server: run apply with --endpoint", sb.Name(), record.Served.CodebaseID)
	}
	o.Progress = p.count
	if o.Drop, err = api.DropLive(ctx, sb.Dir()); err != nil {
		return result, err
	}
	return apply.Changes(ctx, sb, o)
}

// applyAll is `run --apply`.
func (e *env) applyAll(ctx context.Context, sb *record.Sandbox) error {
	result, err := applyWith(ctx, sb, apply.Options{AtStart: true}, e.progress("applying"))
	return e.tellAppliedAll(result, err)
}

// tellAppliedAll says how the apply of `run --apply` went.
func (e *env) tellAppliedAll(result apply.Result, err error) error {
	if n := result.Count(apply.Applied); n > 0 {
		e.say("applied %s", plural(n, "change"))
	}
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "apply: %w", err)
	}
	if n := result.Count(apply.ChangedSinceReview); n > 0 {
		return errdefs.New(errdefs.Precondition, "apply: left out %s, which the sandbox changed meanwhile", plural(n, "path"))
	}
	return nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

type appliedPath struct {
	Path    string         `json:"path"` // escaped
	Status  changes.Status `json:"status"`
	Outcome apply.Outcome  `json:"outcome"`
	Reason  string         `json:"reason,omitempty"`
	*review.RiskFlag
	Group string `json:"group,omitempty"`
}

type applied struct {
	SchemaVersion int                 `json:"schema_version"`
	DryRun        bool                `json:"dry_run"`
	Results       []appliedPath       `json:"results"`
	Groups        []present.JSONGroup `json:"groups,omitempty"`
	WrittenAgain  []string            `json:"written_again,omitempty"`
}

func applyDocument(result apply.Result, dryRun bool) applied {
	doc := applied{SchemaVersion: present.Version, DryRun: dryRun, Results: []appliedPath{}, WrittenAgain: escaped(result.Changed)}
	doc.Groups = present.JSONGroups(result.Groups)
	for _, p := range result.Listed() {
		doc.Results = append(doc.Results, appliedPath{
			Path: shown(p.Path), Status: p.Status, Outcome: p.Outcome, Reason: vpath.Escape(p.Reason), RiskFlag: p.Mark, Group: p.Group,
		})
	}
	return doc
}
