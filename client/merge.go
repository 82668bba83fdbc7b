package client

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// MergeOptions say what Merge takes. The zero value takes all changes, and stops at a conflict.
type MergeOptions struct {
	Snapshot string   // of the other sandbox: a name, a label or "@{N}"; "" for the present state
	Paths    []string // only what is at and below them; nil for everything
	// Resolve decides conflicts, "" does not. "Ours" is the version of the sandbox that gets the
	// changes, "theirs" that of the other one. What a policy refuses stays a conflict.
	Resolve ConflictResolution
	DryRun  bool // changes nothing
}

// Merged is what Merge did, or would do.
type Merged struct {
	Paths        []MergedPath // empty if there are conflicts; the list may be cut
	PathCount    int64        // number of all paths
	ChangedCount int64        // how many of them the merge changes
	// Conflicts prevent the merge; only with MergeOptions.DryRun. The list may be cut.
	Conflicts     []MergeConflict
	ConflictCount int64          // number of all conflicts
	LeftOut       []MergeLeftOut // changes that no merge takes; the list may be cut
	LeftOutCount  int64          // number of all of them
	Kept          *Snapshot      // has what was there before; nil if nothing was changed
}

// MergedPath is what a merge does at a path.
type MergedPath struct {
	Path   string
	Status ChangeStatus // of the sandbox that gets the change; "": its entry stays as it is
	Merged bool         // the content has the changes of both
	// Resolved is the conflict that MergeOptions.Resolve decided; "" for none.
	Resolved ConflictKind
}

// MergeConflict says why a path cannot be merged.
type MergeConflict struct {
	Path   string
	Kind   ConflictKind
	Reason string
}

// MergeLeftOut is a change that no merge takes.
type MergeLeftOut struct {
	Path   string // "" for a mount as a whole
	Mount  string // "" for the workspace
	Reason string
}

// Merge brings what another sandbox of the same codebase has changed, such as a fork, into the
// changes of s, all or nothing. The codebase is not touched, and changes in mounts are left out.
// Texts that both changed are merged by lines. s is stopped; the other one may run, and stays as it
// is. Restore with "@{1}" takes the merge back. Look at the result before Apply.
//
// Errors: ErrConflict if both changed the same and Resolve does not decide it; ErrDenied if a
// policy does not permit a change (with DryRun the result has both instead); ErrAlreadyRunning;
// ErrNotFound for an unknown snapshot or sandbox, and for a path without a change; ErrPrecondition
// for two codebases; ErrExhausted if the disk or the sandbox is full; ErrInvalid.
func (s *Sandbox) Merge(ctx context.Context, from *Sandbox, o MergeOptions) (*Merged, error) {
	const operation = "merge"
	how, known := resolutions[o.Resolve]
	if !known && o.Resolve != "" {
		return nil, failure(operation, "unknown resolution of conflicts: want ResolveOurs, ResolveTheirs or ResolveMarkers", ErrInvalid)
	}
	if o.Paths != nil && len(o.Paths) == 0 { // the server would take this as a selection of everything
		return &Merged{}, nil
	}
	m, err := s.c.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{
		SandboxId: s.ID, FromSandboxId: from.ID, Snapshot: o.Snapshot, Paths: selection(o.Paths), OnConflict: how, DryRun: o.DryRun,
	})
	if err != nil {
		return nil, s.c.fail(ctx, operation, err)
	}
	return mergedFrom(m), nil
}

func mergedFrom(m *sandboxv1.MergeSandboxResponse) *Merged {
	r := &Merged{PathCount: m.PathCount, ChangedCount: m.ChangedCount, ConflictCount: m.ConflictCount, LeftOutCount: m.LeftOutCount}
	for _, p := range m.Paths {
		r.Paths = append(r.Paths, MergedPath{vpath.DecodeText(p.Path), ChangeStatus(word("CHANGE_STATUS_", p.Status)), p.Merged, conflictKind(p.Resolved)})
	}
	for _, c := range m.Conflicts {
		r.Conflicts = append(r.Conflicts, MergeConflict{vpath.DecodeText(c.Path), conflictKind(c.Kind), c.Reason})
	}
	for _, l := range m.LeftOut {
		r.LeftOut = append(r.LeftOut, MergeLeftOut{vpath.DecodeText(l.Path), l.Mount, l.Reason})
	}
	if m.Kept != nil {
		kept := snapshotFrom(m.Kept)
		r.Kept = &kept
	}
	return r
}

func conflictKind(value sandboxv1.ConflictKind) ConflictKind {
	return ConflictKind(word("CONFLICT_KIND_", value))
}
