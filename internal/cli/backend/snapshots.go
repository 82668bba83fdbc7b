package backend

import (
	"context"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// Snapshots is what the verbs ask about the states of sandboxes.
//
// Where this process may not read all of a sandbox, another one runs with the command line again,
// and the error is a *DoneError.
type Snapshots interface {
	// TakeSnapshot makes a snapshot with a label, which may be empty. Errors: Exists; Exhausted.
	TakeSnapshot(ctx context.Context, name, label string, again []string) (snapshot.Snapshot, error)
	// SnapshotTree lists the snapshots of a sandbox.
	SnapshotTree(ctx context.Context, name string) (snapshot.Tree, error)
	// RemoveSnapshots removes snapshots. Errors: NotFound, and then it removes none.
	RemoveSnapshots(ctx context.Context, name string, refs []string) error
	// Restore brings a sandbox back to a snapshot; with rebase also to one of an earlier
	// directory at the path of the source. Errors: Precondition if it runs; NotFound;
	// *ReplacedError.
	Restore(ctx context.Context, name, ref string, rebase bool, again []string) (snapshot.Restored, error)
	// Fork makes sandboxes that begin with a snapshot of another one, or with "" with its present
	// state, and that have its rules or the given ones. It returns them, also beside an error.
	// rebase is as in Restore. Errors: Exists; *ReplacedError; Denied for rules that a server does
	// not let a fork have.
	Fork(ctx context.Context, name, ref string, names []string, rules *Rules, rebase bool, again []string) ([]Sandbox, error)
	// Merge brings the changes of a sandbox, or of a snapshot of it, into another one of the same
	// source. With conflicts it changes nothing. Errors: Precondition if the other one runs, or for
	// two sources; NotFound; Exhausted.
	Merge(ctx context.Context, o MergeOptions, again []string) (merge.Result, error)
	// Compare shows how two states of one source differ, in the workspace, or in a mount that both
	// have, at and below the paths; without paths, everywhere. A state is the name of a sandbox, or
	// NAME@SNAPSHOT. Close what it returns. Errors: Precondition for states of two sources;
	// NotFound; *LocalOnlyError.
	Compare(ctx context.Context, earlier, later, mount string, paths []vpath.Path, again []string) (*Compared, error)
}

// MergeOptions say what is merged.
type MergeOptions struct {
	From, Into string // names of sandboxes
	Snapshot   string // of From; "" is its present state
	Paths      []vpath.Path
	Resolve    conflict.Resolution
	DryRun     bool
}

// Compared is how two states differ.
type Compared struct {
	*review.Review
	// Close closes the states.
	Close func() error
}

// ErrHasSnapshots refuses to remove a sandbox with snapshots that somebody asked for. Its kind is
// Precondition.
func ErrHasSnapshots(name string) error {
	return errdefs.New(errdefs.Precondition, "sandbox %[1]s: has snapshots; look: agentfense snapshot ls %[1]s · remove it with them: agentfense rm --force %[1]s", name)
}
