package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/history"
)

func newHistory(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "List what was applied, and what was undone",
		Long: `List the applies of a sandbox, and their undos, the latest first; without a NAME those
to the current directory, or to the nearest directory above it that has some. The
history of a removed sandbox stays until it is too old. With --endpoint the NAME is
needed; the id of a linked codebase lists the applies to it, also of removed sandboxes.

The variables AGENTFENSE_HISTORY_RETENTION (default 720h) and
AGENTFENSE_HISTORY_MAX_BYTES_PER_SOURCE (default 1G) bound what is kept. Of an expired
transaction the previous versions are gone, so that it cannot be undone.`,
		Example: `  agentfense history
  agentfense history fix --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			name, dir := "", ""
			var err error
			if len(args) > 0 {
				name = args[0]
			} else if dir, err = os.Getwd(); err != nil {
				return errdefs.New(errdefs.Precondition, "current directory: %w", err)
			}
			list, err := b.History(ctx, name, dir)
			if err != nil {
				return err
			}
			return e.printHistory(list, asJSON)
		})
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

type transactionRow struct {
	ID         string       `json:"id"`
	Kind       history.Kind `json:"kind"`
	Of         string       `json:"of,omitempty"`
	State      string       `json:"state"`
	Time       time.Time    `json:"time"`
	UID        int          `json:"uid"`
	Sandbox    string       `json:"sandbox"`
	SandboxID  string       `json:"sandbox_id"`
	Mount      string       `json:"mount,omitempty"`
	Source     string       `json:"source,omitempty"`   // escaped; not of a server
	Codebase   string       `json:"codebase,omitempty"` // of a server
	Paths      int          `json:"paths"`
	ImageBytes int64        `json:"image_bytes"`
	Branch     *branchRow   `json:"branch,omitempty"`
}

// branchRow is a branch that a transaction moved.
type branchRow struct {
	Name string `json:"name"` // escaped
	From string `json:"from"`
	To   string `json:"to"`
}

func branchRowOf(b *history.BranchMove) *branchRow {
	if b == nil {
		return nil
	}
	return &branchRow{vpath.Escape(b.Name()), b.From, b.To}
}

// stateOf is what became of a transaction.
func stateOf(t *history.Entry) string {
	switch {
	case t.State != history.Committed:
		return string(t.State)
	case t.ReversedBy != "" && t.Kind == history.Undo:
		return "redone"
	case t.ReversedBy != "":
		return "undone"
	case t.Expired:
		return "expired"
	case t.Kind == history.Undo:
		return "done"
	}
	return "applied"
}

// printHistory prints transactions, the latest first.
func (e *env) printHistory(list []history.Entry, asJSON bool) error {
	doc := struct {
		SchemaVersion int              `json:"schema_version"`
		Transactions  []transactionRow `json:"transactions"`
	}{present.Version, []transactionRow{}}
	var rows [][]string
	for i := len(list) - 1; i >= 0; i-- {
		t := &list[i]
		doc.Transactions = append(doc.Transactions, transactionRow{
			ID: t.ID, Kind: t.Kind, Of: t.Of, State: stateOf(t), Time: t.Time, UID: t.UID, Sandbox: t.Name, SandboxID: string(t.Sandbox),
			Mount: t.Mount, Source: t.Source.Path.String(), Codebase: t.Codebase, Paths: t.Count, ImageBytes: t.Bytes, Branch: branchRowOf(t.Branch),
		})
		name := t.Name
		if t.Mount != "" {
			name += ":" + t.Mount
		}
		what := string(t.Kind)
		switch {
		case t.Of != "":
			what += " of " + t.Of
		case t.Branch != nil:
			what += " of commits to " + vpath.Escape(t.Branch.Name())
		}
		rows = append(rows, []string{t.ID, present.LocalTime(t.Time), vpath.Escape(name), fmt.Sprint(t.Count), stateOf(t), what})
	}
	if asJSON {
		return e.printJSON(doc)
	}
	return printTable(e.stdout, []string{"ID", "TIME", "SANDBOX", "PATHS", "STATE", "WHAT"}, rows)
}

// describeTransaction says what a transaction was.
func describeTransaction(t *history.Entry) string {
	to := t.Source.Path.String()
	switch {
	case to != "":
	case t.Mount != "": // a server does not tell where the source is
		to = "the source of mount " + vpath.Escape(t.Mount)
	default:
		to = "codebase " + vpath.Escape(t.Codebase)
	}
	where := "to"
	if t.Kind == history.Undo {
		where = "in"
	}
	return fmt.Sprintf("the %s of sandbox %s %s %s at %s", t.Kind, vpath.Escape(t.Name), where, to, present.LocalTime(t.Time))
}
