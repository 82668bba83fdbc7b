package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// before returns the command before which a snapshot is taken, nil without --checkpoint.
func (o *commandOptions) before(argv []string) []string {
	if !o.Checkpoint {
		return nil
	}
	return append([]string{}, argv...)
}

func newSnapshot(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot NAME [LABEL]",
		Short: "Keep the present state of a sandbox to go back to it",
		Long: `Keep what a sandbox has changed by now, in its workspace and in its mounts, and
print the name of the snapshot. A snapshot takes no space and a few milliseconds, also
while commands run. Each file is kept as the last complete write left it. restore goes
back to a snapshot, fork begins a sandbox with one, and diff NAME@SNAPSHOT shows one.

A kept home directory and scratch directories are not part of a snapshot.`,
		Example: `  agentfense snapshot fix
  agentfense snapshot fix tests-pass
  agentfense snapshot ls fix
  agentfense restore fix tests-pass`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.completeNames,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		label := ""
		if len(args) > 1 {
			label = args[1]
			if err := snapshot.CheckLabel(label); err != nil {
				return usageError{err}
			}
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			s, err := b.TakeSnapshot(ctx, args[0], label, e.args)
			if err == nil {
				_, err = fmt.Fprintln(e.stdout, s.Ref())
			}
			return err
		})
	}
	marked(cmd)
	cmd.AddCommand(newSnapshotLs(e), newSnapshotRm(e))
	return cmd
}

func newSnapshotLs(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls NAME",
		Short: "List the snapshots of a sandbox as a tree",
		Long: `List the snapshots of a sandbox. One that was made of another is below it,
and "now" is below the one of which the present state was made.`,
		Example: `  agentfense snapshot ls fix
  agentfense snapshot ls fix --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			t, err := b.SnapshotTree(ctx, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return e.printJSON(listedSnapshotsOf(&t))
			}
			return e.printSnapshots(&t)
		})
	}
	jsonFlag(cmd, &asJSON)
	marked(cmd)
	return cmd
}

// listedSnapshots is the JSON document of `snapshot ls`.
type listedSnapshots struct {
	SchemaVersion int              `json:"schema_version"`
	ForkOf        string           `json:"fork_of,omitempty"` // NAME, or NAME@SNAPSHOT
	Present       string           `json:"present,omitempty"` // of which the present state was made
	Snapshots     []listedSnapshot `json:"snapshots"`
}

type listedSnapshot struct {
	Name      string          `json:"name"`
	Label     string          `json:"label,omitempty"`
	Parent    string          `json:"parent,omitempty"` // absent: the source
	CreatedAt time.Time       `json:"created_at"`
	Reason    snapshot.Reason `json:"reason,omitempty"`
	Command   string          `json:"command,omitempty"`
}

func listedSnapshotsOf(t *snapshot.Tree) listedSnapshots {
	l := listedSnapshots{SchemaVersion: schemaVersion, ForkOf: forkOf(t.Origin), Present: numbered(t.Present), Snapshots: []listedSnapshot{}}
	for _, n := range t.Nodes {
		l.Snapshots = append(l.Snapshots, listedSnapshot{
			Name: n.Ref(), Label: n.Label, Parent: numbered(n.Parent), CreatedAt: n.CreatedAt, Reason: n.Reason, Command: n.Command,
		})
	}
	return l
}

func numbered(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("s%d", n)
}

func forkOf(o *snapshot.Origin) string {
	switch {
	case o == nil:
		return ""
	case o.Snapshot == 0:
		return o.Name
	}
	return o.Name + "@" + numbered(o.Snapshot)
}

// printSnapshots draws the tree.
func (e *env) printSnapshots(t *snapshot.Tree) error {
	root := "source"
	if of := forkOf(t.Origin); of != "" {
		root = "source (fork of " + of + ")"
	}
	rows := [][]string{{"SNAPSHOT", "CREATED", "LABEL", "WHY"}, {root, "", "", ""}}
	if t.Present == 0 {
		rows = append(rows, []string{"  now", "", "", ""})
	}
	for _, n := range t.Nodes {
		indent := strings.Repeat("  ", n.Depth+1)
		rows = append(rows, []string{indent + n.Ref(), present.LocalTime(n.CreatedAt), n.Label, whyTaken(&n.Snapshot)})
		if n.Number == t.Present {
			rows = append(rows, []string{indent + "  now", "", "", ""})
		}
	}
	return printRows(e.stdout, rows)
}

func whyTaken(s *snapshot.Snapshot) string {
	switch s.Reason {
	case snapshot.BeforeCommand:
		return "before: " + vpath.Escape(s.Command)
	case snapshot.BeforeMerge:
		return "before merge of " + vpath.Escape(s.Command)
	case snapshot.BeforeRestore:
		return "before restore of " + vpath.Escape(s.Command)
	}
	return ""
}

func newSnapshotRm(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm NAME SNAPSHOT…",
		Short: "Remove snapshots of a sandbox",
		Long: `Remove snapshots. The sandbox and other snapshots stay as they are. What only the
removed ones had is gone.`,
		Example:           `  agentfense snapshot rm fix s1 tests-pass`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: e.completeSnapshots(0),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return b.RemoveSnapshots(ctx, args[0], args[1:]) })
	}
	marked(cmd)
	return cmd
}

// completeSnapshots completes the name of a sandbox and then its snapshots, upTo of them (0: any
// number).
func (e *env) completeSnapshots(upTo int) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 || e.address() != "" {
			return e.completeNames(cmd, args, word)
		}
		_, sb, err := e.open(args[0])
		if err != nil || upTo > 0 && len(args) > upTo {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		l, err := snapshot.Read(sb)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []string
		for _, s := range l.Snapshots {
			found = append(found, s.Ref())
			if s.Label != "" {
				found = append(found, s.Label)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func newRestore(e *env) *cobra.Command {
	var rebase bool
	cmd := &cobra.Command{
		Use:   "restore NAME SNAPSHOT",
		Short: "Bring a sandbox back to a snapshot",
		Long: `Bring the workspace and the mounts of a sandbox back to a snapshot: its name, its
label, or @{N}: @{1} is the state before the last merge, or the last command that ran with
--checkpoint, @{2} the state before the one before it. What was there is kept as another
snapshot, so that nothing is lost. The source is not touched. A sandbox that runs must be
stopped first.`,
		Example: `  agentfense restore fix s1
  agentfense exec fix --checkpoint -- make clean
  agentfense restore fix @{1}`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: e.completeSnapshots(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			var r snapshot.Restored
			err := e.rebasing(rebase, func(rebase bool) (err error) {
				r, err = b.Restore(ctx, args[0], args[1], rebase, e.args)
				return err
			})
			if err != nil {
				return err
			}
			kept := ""
			if r.Kept.Number != 0 {
				kept = fmt.Sprintf("; what was there is %s", r.Kept.Ref())
			}
			e.say("%s is as in %s%s", args[0], r.To.Ref(), kept)
			for _, mount := range r.Left {
				e.say("mount %s: the snapshot does not have it; it stays as it was", mount)
			}
			return nil
		})
	}
	snapshotRebaseFlag(cmd, &rebase)
	marked(cmd)
	return cmd
}

func snapshotRebaseFlag(cmd *cobra.Command, rebase *bool) {
	cmd.Flags().BoolVar(rebase, "rebase", false, "if the source was deleted and created again, use the new directory")
}

// describeSnapshot describes an event of the audit log.
func describeSnapshot(v audit.SnapshotChanged) string {
	what := v.Snapshot
	if v.Label != "" {
		what += " " + vpath.Escape(v.Label)
	}
	switch {
	case v.Action == audit.SnapshotForked && v.Snapshot == "":
		return "forked as " + vpath.Escape(v.Fork)
	case v.Action == audit.SnapshotForked:
		return what + " forked as " + vpath.Escape(v.Fork)
	case v.Kept != "":
		return what + " restored; what was there is " + v.Kept
	case v.Reason == string(snapshot.BeforeCommand):
		return what + " taken before a command"
	case v.Reason == string(snapshot.BeforeMerge):
		return what + " taken before a merge"
	case v.Reason == string(snapshot.BeforeRestore):
		return what + " taken before a restore"
	}
	return what + " " + vpath.Escape(v.Action)
}

// forkOptions are the flags of fork.
type forkOptions struct {
	policySource
	Rebase bool
}

func newFork(e *env) *cobra.Command {
	var o forkOptions
	cmd := &cobra.Command{
		Use:   "fork NAME[@SNAPSHOT] NEW… [flags]",
		Short: "Make sandboxes that begin with the state of another one",
		Long: `Make one or more sandboxes that begin with what another one has changed by now, or
with one of its snapshots, and print their names. They share what is there already, so a
fork takes almost no time and no space, also while commands run. They have the directory,
the policy and the settings of the other one. --preset and --policy replace the policy;
other flags add rules, as policy set does.

A kept home directory, scratch directories and snapshots of the other one are not taken
over.`,
		Example: `  agentfense fork fix try-a try-b
  agentfense fork fix@s1 again
  agentfense fork fix careful --hide '*.sqlite'
  agentfense diff try-a try-b`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: e.completeNames,
	}
	o.registerRules(cmd)
	snapshotRebaseFlag(cmd, &o.Rebase)
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runFork(ctx, e, cmd, b, args, o) })
	}
	return cmd
}

func runFork(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, args []string, o forkOptions) error {
	name, ref, err := snapshot.SplitRef(args[0])
	if err != nil {
		return usageError{err}
	}
	var rules *backend.Rules
	if changed(cmd, setFlags) {
		has, err := b.Policy(ctx, name)
		if err != nil {
			return err
		}
		if err := o.checkFileLimits(cmd, has.Record); err != nil {
			return err
		}
		isWhole := changed(cmd, []string{"preset", "policy"})
		next, err := o.next(e, has, isWhole)
		if err != nil {
			return err
		}
		next.Grants = changed(cmd, []string{"preset", "policy", "write", "read", "view"})
		if !isWhole {
			next.From = has.Record.Rules
		}
		if o.fileNetwork != nil || len(o.fileScratch) > 0 {
			return errdefs.New(errdefs.Invalid, "fork --policy %s: a fork has the network and the scratch directories of %s; set those of the file afterwards: agentfense policy set NEW --policy %[1]s", vpath.Quote(o.Policy), name)
		}
		rules = &next
	}
	if ref == snapshot.Present {
		ref = ""
	}
	var forks []backend.Sandbox
	err = e.rebasing(o.Rebase, func(rebase bool) (err error) {
		forks, err = b.Fork(ctx, name, ref, args[1:], rules, rebase, e.args)
		return err
	})
	for _, f := range forks {
		fmt.Fprintln(e.stdout, f.Record.Name)
	}
	return err
}
