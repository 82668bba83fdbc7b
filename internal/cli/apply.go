package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

type applyOptions struct {
	DryRun   bool
	JSON     bool
	Reviewed string
	Latest   bool
	To       string
	Rebase   bool
	Verbose  bool
	attestOptions
	conflictOptions
	commitsOptions
	Patch   bool
	Hunks   []string
	Branch  string
	Message string
}

func newApply(e *env) *cobra.Command {
	var o applyOptions
	var w whichChanges
	cmd := &cobra.Command{
		Use:   "apply NAME [PATH…]",
		Short: "Bring a sandbox's changes into its source",
		Long: `Bring a sandbox's changes, or those at and below the given paths, into its source.
What is applied is what was shown to you last, by diff or by the summary after
run. What changed since is left out, named, and stays in the sandbox; the exit
code is then 3. --latest takes what is there now.

Every path is checked first. A text that has changed in the source, too, is merged by
lines, as git does. If the same lines have changed, or something that is not a text,
nothing is applied and the paths are named. --ours, --theirs or --markers says what to
do with such lines. Each file is then replaced whole, and leaves the delta once the
source holds it. What changed in a .git directory is applied as a whole or not at all.
agentfense undo takes an apply back.

--to applies the changes to another directory with the same checks: what is there
must be what the sandbox saw, by content. The changes stay in the sandbox. If the
source was deleted and made again, --rebase takes the directory that is there now.

--patch asks hunk by hunk, as git add -p does; what you do not choose stays in the
sandbox. For programs, diff --json has the ids of changes and hunks, which --hunk takes.

--to-branch commits the changes to a new branch of the source's git repository. Its
index and work tree stay as they are, and the changes stay in the sandbox. The commit is
HEAD with the changes; they are merged where HEAD and the work tree differ, and a
conflict refuses the commit. Hooks and filters of git are not run.

--commits brings the commits that commands made in a clean repository (--git=clean), with
their authors and messages; agentfense commits lists them. They continue the branch that
is checked out, and its work tree and index follow, if these are without changes at each
path that the commits change; agentfense undo takes that back. With --to-branch they are
on a new branch, and your work tree stays as it is.

What was changed in a mount is applied with --in MOUNT; --all applies the workspace and
each mount, one after another. If one of them is refused, the others are applied all the
same. With --json, --all prints one document for each.

--attest writes a statement about what was applied, and under which policy, to FILE, and
signs it with a key of ssh in FILE.sig. agentfense verify checks it.`,
		Example: `  agentfense apply fix --dry-run
  agentfense apply fix
  agentfense apply fix --latest
  agentfense apply fix src/main.go docs
  agentfense apply fix -p src
  agentfense apply fix --markers
  agentfense apply fix --to ../copy
  agentfense apply fix --to-branch agent/fix --message "Fix the parser"
  agentfense apply fix --commits
  agentfense apply fix --commits --to-branch agent/fix
  agentfense apply fix --in data
  agentfense apply fix --attest fix.json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	files := onChanges(e, &w, &o, runApply)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch err := o.checkCommits(args[1:]); {
		case err != nil:
			return err
		case !o.Commits:
			return files(cmd, args)
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return applyCommits(ctx, e, b, args[0], o) })
	}
	w.register(e, cmd, "apply")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().StringVar(&o.Reviewed, "reviewed", "", "apply what diff showed with this `DIGEST`; with --commits, the commits up to the one with this id")
	cmd.Flags().BoolVar(&o.Latest, "latest", false, "apply what is there now, shown or not")
	cmd.MarkFlagsMutuallyExclusive("reviewed", "latest")
	cmd.Flags().StringVar(&o.To, "to", "", "apply to this `DIR` instead of the source; the changes stay in the sandbox")
	rebaseFlag(cmd, &o.Rebase)
	cmd.MarkFlagsMutuallyExclusive("to", "rebase")
	cmd.MarkFlagsMutuallyExclusive("to", "all")
	cmd.MarkFlagsMutuallyExclusive("reviewed", "all")
	cmd.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "list each path, also those in a group and, if a path stops the apply, the others")
	jsonFlag(cmd, &o.JSON)
	partFlags(cmd, &o)
	o.attestOptions.register(cmd)
	o.registerConflicts(cmd)
	o.commitsOptions.register(cmd)
	return cmd
}

func runApply(ctx context.Context, e *env, c changesIn, paths []vpath.Path, o applyOptions) error {
	options := backend.ApplyOptions{Paths: paths, Hunks: o.Hunks, DryRun: o.DryRun, Reviewed: o.Reviewed, To: o.To, Branch: o.Branch, Message: o.Message, OnConflict: o.resolution()}
	if o.Latest {
		options.Take = backend.TakeLatest
	}
	err := o.check(paths)
	if err == nil {
		err = o.prepare(ctx, e, &options)
	}
	if err != nil {
		return err
	}
	if o.Patch {
		chosen, err := e.pickHunks(ctx, c, &options)
		if err != nil || !chosen {
			return err
		}
	}
	var result backend.Applied
	err = e.rebasing(o.Rebase, func(rebase bool) (err error) {
		options.Rebase = rebase
		result, err = e.apply(ctx, c.Changes, options, o.JSON)
		return err
	})
	applied := result.Count(apply.Applied)
	isDone := applied > 0 && !o.DryRun
	if isDone && err == nil {
		e.sayInCodebase(result)
	}
	err = e.tellApplied(c, paths, result, err, o)
	if isDone {
		e.sayElsewhere(result, o.Branch)
		err = errors.Join(err, o.sign(ctx, e, result.Statement))
	} else if err == nil {
		o.sayUnsigned(e)
	}
	if err == nil && len(result.Paths) == 0 && !o.JSON {
		err = e.saySynced(ctx, c.Changes)
	}
	return err
}

// sayElsewhere says where the changes are, if they are not in the source.
func (e *env) sayElsewhere(result backend.Applied, branch string) {
	switch {
	case result.To != "":
		e.say("the changes are in %s now and still in the sandbox", record.HostPath(result.To))
	case result.Commit != "":
		e.say("committed %s to branch %s; the changes are still in the sandbox", result.Commit, vpath.Escape(branch))
	}
}

// apply applies, and shows progress unless the output is not for a person.
func (e *env) apply(ctx context.Context, c backend.Changes, o backend.ApplyOptions, quiet bool) (backend.Applied, error) {
	p := e.progressUnless(quiet, "applying")
	defer p.stop()
	o.Progress, o.Waiting, o.Recovered = p.count, e.sayWaiting, e.sayRecovered
	return c.Apply(ctx, o)
}

// sayInCodebase says how to get what was applied where this host has no directory of it.
func (e *env) sayInCodebase(result backend.Applied) {
	if result.Codebase != "" {
		e.say("applied %s to codebase %[2]s; this machine did not upload it; to download it: agentfense codebase pull %[2]s DIR", plural(result.Count(apply.Applied), "change"), result.Codebase)
	}
}

// saySynced says, where nothing waits in a sandbox, which of its changes are in the
// codebase already.
func (e *env) saySynced(ctx context.Context, c backend.Changes) error {
	synced, err := c.Synced(ctx)
	if err == nil {
		e.listSynced(c.Sandbox(), synced)
	}
	return err
}

// listSynced names what is in the codebase of a sandbox already.
func (e *env) listSynced(sb backend.Sandbox, synced []vpath.Path) {
	if len(synced) == 0 {
		return
	}
	names := escaped(synced)
	more := ""
	if n := len(names) - summaryLines; n > 0 {
		names, more = names[:summaryLines], fmt.Sprintf(" and %d more", n)
	}
	e.say("already in codebase %s: %s%s", sb.Record.Served.CodebaseID, strings.Join(names, ", "), more)
}

// tellApplied says how an apply of paths went, which err says too.
func (e *env) tellApplied(c changesIn, paths []vpath.Path, result backend.Applied, err error, o applyOptions) error {
	leftOut := result.Count(apply.ChangedSinceReview)
	if err == nil && leftOut > 0 {
		err = exitError(exitLeftOut)
	}
	if o.JSON {
		doc := applyDocument(c.mount, result.Result, o.DryRun)
		if !o.DryRun {
			doc.Commit = result.Commit
		}
		if printErr := e.printJSON(doc); err == nil {
			err = printErr
		}
		return err
	}
	if printErr := e.printApplied(c, result.Result, o.Verbose); err == nil {
		err = printErr
	}
	switch n := result.Count(apply.Applied); {
	case result.Count(apply.Conflict) > 0:
		e.sayApplyConflicts(c.Ref(), &result.Result, o.Branch == "")
	case err != nil && n == 0 && leftOut == 0:
	case o.DryRun:
		e.say("would apply %s%s%s", plural(n, "change"), c.where(), mergedNote(&result.Result))
	case o.Branch != "": // runApply says it
	default:
		e.say("applied %s%s%s", plural(n, "change"), c.where(), mergedNote(&result.Result))
		o.sayMarkers(e, &result.Result)
	}
	if o.Patch || len(o.Hunks) > 0 {
		e.sayHunksLeftOut(c.Ref(), leftOut)
	} else {
		e.sayLeftOut(c.Ref(), paths, leftOut)
	}
	return err
}

// sayLeftOut says what to do about what had changed since it was shown, at no other paths than
// those that were named.
func (e *env) sayLeftOut(ref string, paths []vpath.Path, n int) {
	if n > 0 {
		for _, p := range paths {
			ref += " " + shellWord(p.Rel())
		}
		e.say("left out %s, changed since shown; to see the current state: agentfense diff %[2]s · to apply it: agentfense apply %[2]s --latest", plural(n, "path"), ref)
	}
}

// applyAll is `run --apply`.
func (e *env) applyAll(ctx context.Context, c backend.Changes) (applied bool, err error) {
	result, err := e.apply(ctx, c, backend.ApplyOptions{Take: backend.TakeNow}, false)
	applied = result.Count(apply.Applied) > 0
	if applied && err == nil {
		e.sayInCodebase(result)
	}
	return applied, e.tellAppliedAll(result.Result, err)
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
	Mount   string         `json:"mount,omitempty"`
	Path    string         `json:"path"` // escaped
	Status  changes.Status `json:"status"`
	Outcome apply.Outcome  `json:"outcome"`
	Reason  string         `json:"reason,omitempty"`
	*review.RiskFlag
	Group string `json:"group,omitempty"`
	// Of a file of which a part was chosen: how many of its hunks.
	Hunks   int `json:"hunks,omitempty"`
	OfHunks int `json:"of_hunks,omitempty"`
	// Merged says that the source had changed, too, and has the changes of both now; Conflicts are
	// the places at which these contradicted each other.
	Merged    bool `json:"merged,omitempty"`
	Conflicts int  `json:"conflicts,omitempty"`
	// Conflict is the kind of a conflict.
	Conflict conflict.Kind `json:"conflict,omitempty"`
}

type applied struct {
	SchemaVersion int                 `json:"schema_version"`
	Mount         string              `json:"mount,omitempty"`
	DryRun        bool                `json:"dry_run"`
	Commit        string              `json:"commit,omitempty"` // of --to-branch
	Results       []appliedPath       `json:"results"`
	Groups        []present.JSONGroup `json:"groups,omitempty"`
	WrittenAgain  []string            `json:"written_again,omitempty"`
	Transaction   string              `json:"transaction,omitempty"` // of undo
}

func applyDocument(mount string, result apply.Result, dryRun bool) applied {
	doc := applied{SchemaVersion: present.Version, Mount: mount, DryRun: dryRun, Results: []appliedPath{}, WrittenAgain: escaped(result.Changed), Transaction: result.Transaction}
	doc.Groups = present.JSONGroups(result.Groups)
	for _, p := range result.Listed() {
		doc.Results = append(doc.Results, appliedPath{
			Mount: mount, Path: shown(p.Path), Status: p.Status, Outcome: p.Outcome, Reason: vpath.EscapeMessage(p.Reason), RiskFlag: p.Mark, Group: p.Group,
			Hunks: p.Hunks, OfHunks: p.OfHunks, Merged: p.Merged, Conflicts: p.Conflicts, Conflict: p.Kind,
		})
	}
	return doc
}
