package backend

import (
	"context"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// Snapshots is what the verbs ask about the states of sandboxes. A server does none of it, and
// returns ErrNoSnapshots.
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
	// Restore brings a sandbox back to a snapshot. Errors: Precondition if it runs; NotFound.
	Restore(ctx context.Context, name, ref string, again []string) (snapshot.Restored, error)
	// Fork makes sandboxes that begin with a snapshot of another one, or with "" with its present
	// state, and that have its rules or the given ones. It returns them, also beside an error.
	// Errors: Exists.
	Fork(ctx context.Context, name, ref string, names []string, rules *Rules, again []string) ([]Sandbox, error)
	// Compare shows how two states of one source differ, in the workspace, or in a mount that both
	// have, at and below the paths; without paths, everywhere. A state is the name of a sandbox, or
	// NAME@SNAPSHOT. Close what it returns. Errors: Precondition for states of two sources;
	// NotFound.
	Compare(ctx context.Context, earlier, later, mount string, paths []vpath.Path, again []string) (*Compared, error)
}

// Compared is how two states differ.
type Compared struct {
	*review.Review
	// Close closes the states.
	Close func() error
}

// ErrNoSnapshots says that a server cannot do what a verb asks for. Its kind is Unsupported.
func ErrNoSnapshots() error {
	return errdefs.New(errdefs.Unsupported, "snapshots and forks work only on this host, not on a server")
}
