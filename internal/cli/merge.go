package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

type forkMergeOptions struct {
	Into   string
	DryRun bool
	JSON   bool
	conflictOptions
}

func newMerge(e *env) *cobra.Command {
	var o forkMergeOptions
	cmd := &cobra.Command{
		Use:   "merge FORK[@SNAPSHOT] [PATH…] --into NAME",
		Short: "Bring what a fork changed into another sandbox",
		Long: `Bring what a fork has changed, or what it changed at and below the given paths, into the
changes of the sandbox NAME. FORK can be any other sandbox of the same directory. The source
is not touched. What both changed since they began with one state is merged: texts by lines,
as git merge-file does.

If there is a conflict, or a policy does not permit a change, nothing is changed and the
paths are named. --ours keeps the version of NAME where the two contradict each other,
--theirs takes that of FORK, and --markers writes both into a text, between conflict
markers. None of them changes what a policy refuses.

NAME must be stopped; FORK may run, and stays as it is. What was there is kept as a
snapshot: agentfense restore NAME @{1} takes the merge back. What came with the merge is
applied only after you looked at it: agentfense diff NAME.`,
		Example: `  agentfense merge try-a --into fix --dry-run
  agentfense merge try-a --into fix
  agentfense merge try-b src --into fix --theirs
  agentfense merge try-b@s1 --into fix`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runMerge(ctx, e, b, args, o) })
	}
	f := cmd.Flags()
	f.StringVar(&o.Into, "into", "", "the sandbox that gets the changes, by `NAME`")
	o.conflictOptions.register(cmd,
		"where the two contradict each other, keep the version of NAME",
		"where the two contradict each other, take the version of FORK",
		"where texts contradict each other, write both versions between markers")
	f.BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	jsonFlag(cmd, &o.JSON)
	marked(cmd)
	_ = cmd.MarkFlagRequired("into") // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("into", e.completeNames)
	return cmd
}

func runMerge(ctx context.Context, e *env, b backend.Backend, args []string, o forkMergeOptions) error {
	from, ref, err := snapshot.SplitRef(args[0])
	if err != nil {
		return usageError{err}
	}
	if ref == snapshot.Present {
		ref = ""
	}
	paths, err := changedPaths(args[1:])
	if err != nil {
		return e.explainPaths(ctx, b, from, "", args[1:], err)
	}
	p := e.progressUnless(o.JSON, "merging")
	defer p.stop()
	r, err := b.Merge(ctx, backend.MergeOptions{From: from, Into: o.Into, Snapshot: ref, Paths: paths, Resolve: o.resolution(), DryRun: o.DryRun}, e.args)
	if err != nil {
		return e.explainPaths(ctx, b, from, "", args[1:], err)
	}
	p.stop()
	if o.JSON {
		err = e.printJSON(mergedDocument(args[0], &o, &r))
	} else {
		err = e.printMerged(&r)
	}
	if err != nil {
		return err
	}
	return e.tellMerged(args[0], &o, &r)
}

// tellMerged says how a merge went. Conflicts are an error.
func (e *env) tellMerged(from string, o *forkMergeOptions, r *merge.Result) error {
	from, into := vpath.Escape(from), vpath.Escape(o.Into)
	changed := r.Changed()
	switch {
	case len(r.Conflicts) > 0:
		return errdefs.New(errdefs.Precondition, "merge %s: %s, and nothing was changed; look at them: agentfense diff %[3]s %[1]s · %[4]s", from, plural(len(r.Conflicts), "conflict"), into, o.howToDecide())
	case o.JSON:
	case changed == 0 && len(r.Paths) > 0:
		e.say("%s keeps its version of %s, nothing was changed", into, plural(len(r.Paths), "path"))
	case changed == 0:
		e.say("%s has all that %s changed, nothing was merged", into, from)
	case o.DryRun:
		e.say("would merge %s of %s into %s", plural(changed, "change"), from, into)
	default:
		e.say("merged %s of %s into %s; what was there is %s: agentfense restore %[3]s %[4]s takes it back · to look: agentfense diff %[3]s", plural(changed, "change"), from, into, r.Kept.Ref())
	}
	return nil
}

// howToDecide says what can be done about conflicts that the flags given have not decided.
func (o *forkMergeOptions) howToDecide() string {
	switch o.resolution() {
	case conflict.Markers:
		return "--markers decides only lines of texts: use --ours or --theirs, or name the paths to merge"
	case conflict.Ours:
		return "--ours does not decide these: name the other paths to merge"
	case conflict.Theirs:
		return "--theirs does not decide these: name the other paths to merge"
	}
	return "decide: --ours, --theirs or --markers · or name the paths to merge"
}

// printMerged prints a line for each path.
func (e *env) printMerged(r *merge.Result) error {
	var lines []string
	for _, c := range r.Conflicts {
		lines = append(lines, fmt.Sprintf("conflict\t%s\t%s\t%s", c.Kind, changes.Quote(c.Path), vpath.EscapeMessage(c.Reason)))
	}
	for _, p := range r.Paths {
		status := "-"
		if p.Status != 0 {
			status = p.Status.String()
		}
		line := fmt.Sprintf("%s\t%s\t%s", mergedHow(&p), status, changes.Quote(p.Path))
		if p.Resolved != "" {
			line += "\tdecided: " + string(p.Resolved)
		}
		lines = append(lines, line)
	}
	for _, l := range r.Left {
		where := vpath.Escape(l.Mount) + ":"
		if l.Mount == "" {
			where = changes.Quote(l.Path)
		}
		lines = append(lines, fmt.Sprintf("left out\t-\t%s\t%s", where, vpath.EscapeMessage(l.Reason)))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(e.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// mergedHow is of which side the result is.
func mergedHow(p *merge.Path) string {
	switch {
	case p.Status == 0:
		return "kept"
	case p.Merged:
		return "merged"
	}
	return "taken"
}

// merged is the JSON document of `merge`.
type merged struct {
	SchemaVersion int              `json:"schema_version"`
	From          string           `json:"from"`
	Into          string           `json:"into"`
	DryRun        bool             `json:"dry_run"`
	Changed       int              `json:"changed"`
	Kept          string           `json:"kept,omitempty"` // the snapshot with what was there
	Results       []mergedPath     `json:"results"`
	Conflicts     []mergedConflict `json:"conflicts"`
	LeftOut       []mergedLeft     `json:"left_out"`
}

type mergedPath struct {
	Path     string         `json:"path"`
	Outcome  string         `json:"outcome"`            // taken, merged, kept
	Status   changes.Status `json:"status,omitempty"`   // absent: kept
	Resolved conflict.Kind  `json:"resolved,omitempty"` // the conflict that a flag has decided
}

type mergedConflict struct {
	Path   string        `json:"path"`
	Kind   conflict.Kind `json:"kind"`
	Reason string        `json:"reason"`
}

type mergedLeft struct {
	Path   string `json:"path,omitempty"`
	Mount  string `json:"mount,omitempty"`
	Reason string `json:"reason"`
}

func mergedDocument(from string, o *forkMergeOptions, r *merge.Result) merged {
	doc := merged{
		SchemaVersion: schemaVersion, From: from, Into: o.Into, DryRun: o.DryRun,
		Results: []mergedPath{}, Conflicts: []mergedConflict{}, LeftOut: []mergedLeft{},
	}
	if len(r.Conflicts) == 0 {
		doc.Changed = r.Changed()
	}
	if r.Kept.Number != 0 {
		doc.Kept = r.Kept.Ref()
	}
	for _, p := range r.Paths {
		doc.Results = append(doc.Results, mergedPath{shown(p.Path), mergedHow(&p), p.Status, p.Resolved})
	}
	for _, c := range r.Conflicts {
		doc.Conflicts = append(doc.Conflicts, mergedConflict{shown(c.Path), c.Kind, vpath.EscapeMessage(c.Reason)})
	}
	for _, l := range r.Left {
		left := mergedLeft{Mount: l.Mount, Reason: vpath.EscapeMessage(l.Reason)}
		if l.Mount == "" {
			left.Path = shown(l.Path)
		}
		doc.LeftOut = append(doc.LeftOut, left)
	}
	return doc
}
