package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// SnapshotReason says why a snapshot was taken.
type SnapshotReason string

// The reasons. The empty one means that a caller asked for it.
const (
	SnapshotCheckpoint SnapshotReason = "checkpoint" // a command ran with WithCheckpoint
	SnapshotRestore    SnapshotReason = "restore"    // it has what was there before Restore
	SnapshotMerge      SnapshotReason = "merge"      // it has what was there before Merge
)

// Snapshot is a state of a sandbox.
type Snapshot struct {
	Name      string // "s" and a number, unique in the sandbox
	Label     string // "" for none
	CreatedAt time.Time
	Reason    SnapshotReason
	// Command is that of SnapshotCheckpoint; of SnapshotRestore the snapshot that was restored, and
	// of SnapshotMerge the sandbox that was merged, with "@" and a snapshot if one was named.
	Command string
	// Parent is the Name of the snapshot of which this state was made, "" for the codebase. Only
	// Snapshots returns it.
	Parent string
}

// Snapshots are the snapshots of a sandbox as a tree.
type Snapshots struct {
	Snapshots []Snapshot  // parents before children
	Present   string      // the snapshot of which the present state was made, "" for the codebase
	ForkOf    *ForkOrigin // nil if the sandbox is not a fork
}

// ForkOrigin is the state with which a fork began.
type ForkOrigin struct {
	SandboxID, SandboxName string
	Snapshot               string // "" for the state of that time
}

// Restored is what Restore did.
type Restored struct {
	Snapshot Snapshot
	// Kept has what was there before; nil if another snapshot has it, or if there were no changes.
	Kept *Snapshot
	// LeftMounts are the names of mounts that the snapshot does not have. They stay as they were.
	LeftMounts []string
}

// ForkOptions say what forks begin with. The zero value is the present state with the rules of the
// sandbox.
type ForkOptions struct {
	Snapshot string // a name, a label or "@{N}"; "" for the present state
	// Permissions replace the rules; nil keeps them, and an empty list hides everything.
	Permissions []PermissionRule
	// AllowWider lets Permissions permit more than the rules of the sandbox, if the server's
	// configuration does.
	AllowWider bool
	ExpiresIn  time.Duration // 0: they expire with the sandbox
}

// State is a state of a sandbox, for Compare.
type State struct {
	SandboxID string
	Snapshot  string // a name, a label or "@{N}"; "source": the codebase; "": the present state
}

// At returns a state of the sandbox: a snapshot, "source" for the codebase, "" for the present
// state.
func (s *Sandbox) At(snapshot string) State { return State{s.ID, snapshot} }

func snapshotFrom(m *sandboxv1.Snapshot) Snapshot {
	return Snapshot{
		Name: m.GetName(), Label: m.GetLabel(), CreatedAt: timeFrom(m.GetCreatedAt()),
		Reason: SnapshotReason(knownWord("SNAPSHOT_REASON_", m.GetReason())), Command: m.GetCommand(), Parent: m.GetParent(),
	}
}

// Snapshot keeps the present state of the sandbox, also while commands run. label may be "".
// Errors: ErrExists for a label in use; ErrInvalid; ErrExhausted if the sandbox has 200 snapshots.
func (s *Sandbox) Snapshot(ctx context.Context, label string) (Snapshot, error) {
	m, err := s.c.snapshots.CreateSnapshot(ctx, &sandboxv1.CreateSnapshotRequest{SandboxId: s.ID, Label: label})
	if err != nil {
		return Snapshot{}, s.c.fail(ctx, "snapshot", err)
	}
	return snapshotFrom(m), nil
}

// Snapshots lists the snapshots of the sandbox.
func (s *Sandbox) Snapshots(ctx context.Context) (Snapshots, error) {
	m, err := s.c.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: s.ID})
	if err != nil {
		return Snapshots{}, s.c.fail(ctx, "list snapshots", err)
	}
	all := Snapshots{Present: m.Present}
	for _, each := range m.Snapshots {
		all.Snapshots = append(all.Snapshots, snapshotFrom(each))
	}
	if o := m.ForkOf; o != nil {
		all.ForkOf = &ForkOrigin{o.SandboxId, o.SandboxName, o.Snapshot}
	}
	return all, nil
}

// DeleteSnapshot removes a snapshot, by its name or label. Errors: ErrNotFound.
func (s *Sandbox) DeleteSnapshot(ctx context.Context, snapshot string) error {
	_, err := s.c.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: s.ID, Snapshot: snapshot})
	return s.c.fail(ctx, "delete snapshot", err)
}

// Restore brings the stopped sandbox back to a snapshot: its name, its label, or "@{N}" for the
// state before the last merge, or command with WithCheckpoint, but N-1. It keeps what was there as
// another snapshot. Errors: ErrAlreadyRunning; ErrNotFound.
func (s *Sandbox) Restore(ctx context.Context, snapshot string) (Restored, error) {
	m, err := s.c.snapshots.RestoreSnapshot(ctx, &sandboxv1.RestoreSnapshotRequest{SandboxId: s.ID, Snapshot: snapshot})
	if err != nil {
		return Restored{}, s.c.fail(ctx, "restore", err)
	}
	r := Restored{Snapshot: snapshotFrom(m.Snapshot), LeftMounts: m.LeftMounts}
	if m.Kept != nil {
		kept := snapshotFrom(m.Kept)
		r.Kept = &kept
	}
	return r, nil
}

// Fork makes sandboxes with these names that begin with a state of the sandbox, all or none. It
// does not start them. They share the client and the codebase of s: close them before s. Errors:
// ErrExists, ErrInvalid, ErrNotFound for the snapshot; ErrExhausted beyond the owner's limit;
// ErrDenied for wider rules.
func (s *Sandbox) Fork(ctx context.Context, names []string, o ForkOptions) ([]*Sandbox, error) {
	const operation = "fork"
	r := &sandboxv1.ForkSandboxRequest{SandboxId: s.ID, Snapshot: o.Snapshot, Names: names, AllowWider: o.AllowWider, ExpiresIn: span(o.ExpiresIn)}
	if o.Permissions != nil {
		rules, err := rulesOf(operation, o.Permissions)
		if err != nil {
			return nil, err
		}
		r.Rules = &sandboxv1.ForkRules{Permissions: rules}
	}
	answer, err := lasting(ctx, s.c.snapshots.ForkSandbox, r, func(ctx context.Context, made *sandboxv1.ForkSandboxResponse) error {
		var errs []error
		for _, m := range made.Sandboxes {
			_, err := s.c.destroy(ctx, m.Id)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, s.c.fail(ctx, operation, err)
	}
	var forks []*Sandbox
	for _, m := range answer.Sandboxes {
		fork := s.c.sandbox(m.Id, true)
		if fork.unnoted = s.noteFork(fork.ID, rulesFrom(m.Permissions)); fork.unnoted != nil {
			slog.WarnContext(ctx, "agentfense: Apply cannot apply changes of a fork to the directory: "+fork.unnoted.Error(), "sandbox", fork.ID)
		}
		forks = append(forks, fork)
	}
	return forks, nil
}

// Compare returns how the workspaces of two states of one codebase differ, at and below paths;
// without paths, everywhere. Nothing of it can be applied. Errors: ErrNotFound for an unknown
// state, and for a path at which the states do not differ; ErrPrecondition for two codebases.
func (s *Sandbox) Compare(ctx context.Context, from, to State, paths ...string) ([]FileDiff, error) {
	return s.compare(ctx, "", from, to, selection(paths))
}

// Compare is Sandbox.Compare in the mount, which both sandboxes have. Their codebases may differ.
// Errors: as there; ErrNotFound also for a snapshot that is older than the mount; ErrPrecondition
// for mounts of two sources; ErrDenied if the server's configuration no longer lists the source.
func (m *MountChanges) Compare(ctx context.Context, from, to State, paths ...string) ([]FileDiff, error) {
	return m.s.compare(ctx, m.Files.mount, from, to, selectionOf(paths, m.Files.path))
}

func (s *Sandbox) compare(ctx context.Context, mount string, from, to State, paths []string) ([]FileDiff, error) {
	r := &sandboxv1.CompareStatesRequest{
		SandboxId: to.SandboxID, State: to.Snapshot, FromSandboxId: from.SandboxID, FromState: from.Snapshot, Paths: paths, Mount: mount,
	}
	var all []FileDiff
	for f, err := range pages(func(token string) ([]*sandboxv1.FileDiff, string, error) {
		r.PageToken = token
		page, err := s.c.snapshots.CompareStates(ctx, r)
		return page.GetFiles(), page.GetNextPageToken(), s.c.fail(ctx, "compare", err)
	}, changeFrom) {
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
