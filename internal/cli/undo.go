package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

type undoOptions struct {
	DryRun bool
	Yes    bool
	JSON   bool
	redo   bool
}

func newUndo(e *env) *cobra.Command {
	return e.newReversal(undoOptions{}, &cobra.Command{
		Use:   "undo [ID|NAME]",
		Short: "Take an apply back",
		Long: `Take an apply back: the source gets what it had before, and the sandbox has the
changes again, if it still exists and does not run. ID is an id that history lists:
nothing is asked then. NAME means the last apply of that sandbox. Without an argument,
it is the last apply to the current directory, or to a directory above it. In these two
cases undo shows what it would do, and asks.

Every path is checked first: if one of them has changed since the apply, nothing is
changed and the paths are named. With --endpoint it needs the ID or the NAME; what was
applied to an uploaded directory cannot be undone.`,
		Example: `  agentfense undo
  agentfense undo fix --dry-run
  agentfense undo --yes`,
	})
}

func newRedo(e *env) *cobra.Command {
	return e.newReversal(undoOptions{redo: true}, &cobra.Command{
		Use:   "redo [ID|NAME]",
		Short: "Take an undo back",
		Long: `Take an undo back: the source gets again what the undo took away. ID is an id that
history lists, of the undo or of the apply: nothing is asked then. NAME means the last
undo of that sandbox. Without an argument, it is the last undo in the current directory,
or in a directory above it. In these two cases redo shows what it would do, and asks.`,
		Example: `  agentfense redo
  agentfense redo fix --yes`,
	})
}

// newReversal completes the command of undo or redo.
func (e *env) newReversal(o undoOptions, cmd *cobra.Command) *cobra.Command {
	marked(cmd)
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.ValidArgsFunction = e.completeNames
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			what, err := e.whichTransaction(args, o.redo)
			if err != nil {
				return err
			}
			err = e.reverse(ctx, b, what, o)
			if errdefs.Is(err, errdefs.NotFound) && strings.HasPrefix(what.Name, "tx_") {
				err = errdefs.New(errdefs.NotFound, "%w; to name a transaction, give its whole id as agentfense history lists it", err)
			}
			return err
		})
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

// whichTransaction reads which transaction an argument means.
func (e *env) whichTransaction(args []string, redo bool) (backend.UndoOptions, error) {
	what := backend.UndoOptions{
		Redo: redo, Again: e.args, Recovered: e.sayRecovered, Waiting: e.sayWaiting,
	}
	switch {
	case len(args) == 0:
		var err error
		if what.Dir, err = os.Getwd(); err != nil {
			return what, errdefs.New(errdefs.Precondition, "current directory: %w", err)
		}
	case history.IsID(args[0]):
		what.ID = args[0]
	case args[0] == "":
		return what, usageError{errdefs.New(errdefs.Invalid, "the id of the transaction, or the name of the sandbox, is empty")}
	default:
		what.Name = args[0]
	}
	return what, nil
}

// reverse undoes or redoes. What was not named by its id is shown first, and then reversed by its
// id.
func (e *env) reverse(ctx context.Context, b backend.Backend, what backend.UndoOptions, o undoOptions) error {
	if what.ID == "" && !o.Yes && !o.DryRun {
		what.DryRun = true
		plan, err := b.Undo(ctx, what)
		if err == nil {
			err = undo.Refusal(&plan)
		}
		if err != nil {
			return e.tellReversal(plan, err, o)
		}
		if !e.canAsk() {
			return errdefs.New(errdefs.Precondition, "%s: it would change %s, to take back %s; there is no terminal to ask: give --yes or the id %s", plan.Kind, extentOf(&plan), describeTransaction(&plan.Of), plan.Of.ID)
		}
		e.say("%s of %s, %s", plan.Kind, plan.Of.ID, describeTransaction(&plan.Of))
		for _, p := range plan.Listed() {
			e.say("  %s %s", p.Status, present.WrittenIn(plan.Of.Mount, p.Path))
		}
		if plan.Of.Branch != nil {
			e.say("  %s", branchAfter(plan.Of.Branch))
		}
		if !e.confirm("Do this?") {
			return errdefs.New(errdefs.Canceled, "%s: nothing was changed", plan.Kind)
		}
		what = backend.UndoOptions{ID: plan.Of.ID, Redo: what.Redo, Again: what.Again, Waiting: what.Waiting, Recovered: what.Recovered}
	}
	what.DryRun = o.DryRun
	result, err := b.Undo(ctx, what)
	if err == nil && o.DryRun {
		err = undo.Refusal(&result)
	}
	return e.tellReversal(result, err, o)
}

// tellReversal says how an undo or a redo went, or would go, which err says too.
func (e *env) tellReversal(r undo.Result, err error, o undoOptions) error {
	if _, elsewhere := errors.AsType[*backend.DoneError](err); elsewhere || len(r.Paths) == 0 {
		return err
	}
	if o.JSON {
		return errors.Join(e.printJSON(reversalDocument(r, o.DryRun)), err)
	}
	stopped := r.Conflicts() > 0
	for _, p := range r.Listed() {
		name := present.WrittenIn(r.Of.Mount, p.Path)
		var printErr error
		switch {
		case p.Conflict != "":
			_, printErr = fmt.Fprintf(e.stdout, "conflict\t%s\t%s\t%s\n", p.Status, name, vpath.EscapeMessage(p.Conflict))
		case !stopped && err == nil:
			_, printErr = fmt.Fprintf(e.stdout, "%s\t%s\n", p.Status, name)
		}
		if printErr != nil {
			return printErr
		}
	}
	if err != nil && r.ID == "" {
		return err
	}
	e.sayReversed(r, o)
	return err
}

// extentOf says how much an undo or a redo changes.
func extentOf(r *undo.Result) string {
	n := plural(len(r.Listed()), "path")
	if b := r.Of.Branch; b != nil {
		n += " and " + branchAfter(b)
	}
	return n
}

// branchAfter says where a branch is after the move was reversed.
func branchAfter(b *history.BranchMove) string {
	return fmt.Sprintf("branch %s (at %s)", vpath.Escape(b.Name()), shortID(b.From))
}

// sayReversed says what an undo or a redo did, or would do.
func (e *env) sayReversed(r undo.Result, o undoOptions) {
	n := extentOf(&r)
	switch {
	case o.DryRun:
		e.say("would %s %s: %s", r.Kind, r.Of.ID, n)
	case r.Kind == history.Redo:
		e.say("applied %s again; to take it back: agentfense undo %s", n, r.ID)
	case r.GivenBack:
		e.say("undid %s: %s; the changes are in the sandbox again: agentfense diff %s", r.Of.ID, n, r.Of.Name)
	default:
		e.say("undid %s: %s; to apply it again: agentfense redo %s", r.Of.ID, n, r.ID)
	}
}

// sayWaiting says that another process changes the source.
func (e *env) sayWaiting(holder string) { e.say("waiting: %s is changing the source", holder) }

// sayRecovered says what became of a transaction that a killed process had left.
func (e *env) sayRecovered(r history.Recovered) {
	if r.Completed {
		e.say("%s %s of %s was killed when its branch was moved already: it is complete", r.Kind, r.ID, vpath.Escape(r.Name))
		return
	}
	e.say("%s %s of %s was killed before its end: the source is restored", r.Kind, r.ID, vpath.Escape(r.Name))
	for _, l := range r.Left {
		e.say("  not restored: %s: %s", present.WrittenIn(r.Mount, l.Path), l.Reason)
	}
}

type reversedPath struct {
	Path     string         `json:"path"` // escaped
	Status   changes.Status `json:"status"`
	Conflict string         `json:"conflict,omitempty"`
}

type reversal struct {
	SchemaVersion int            `json:"schema_version"`
	DryRun        bool           `json:"dry_run"`
	ID            string         `json:"id,omitempty"`
	Kind          history.Kind   `json:"kind"`
	Of            string         `json:"of"`
	Sandbox       string         `json:"sandbox"`
	Mount         string         `json:"mount,omitempty"`
	Paths         []reversedPath `json:"paths"`
	GivenBack     bool           `json:"given_back"`
}

func reversalDocument(r undo.Result, dryRun bool) reversal {
	doc := reversal{
		SchemaVersion: present.Version, DryRun: dryRun, ID: r.ID, Kind: r.Kind, Of: r.Of.ID, Sandbox: r.Of.Name,
		Mount: r.Of.Mount, GivenBack: r.GivenBack, Paths: []reversedPath{},
	}
	for _, p := range r.Listed() {
		doc.Paths = append(doc.Paths, reversedPath{shown(p.Path), p.Status, vpath.EscapeMessage(p.Conflict)})
	}
	return doc
}
