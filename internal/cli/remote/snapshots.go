package remote

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// A server has no snapshots and forks.

// TakeSnapshot fails.
func (b *Backend) TakeSnapshot(context.Context, string, string, []string) (snapshot.Snapshot, error) {
	return snapshot.Snapshot{}, backend.ErrNoSnapshots()
}

// SnapshotTree fails.
func (b *Backend) SnapshotTree(context.Context, string) (snapshot.Tree, error) {
	return snapshot.Tree{}, backend.ErrNoSnapshots()
}

// RemoveSnapshots fails.
func (b *Backend) RemoveSnapshots(context.Context, string, []string) error {
	return backend.ErrNoSnapshots()
}

// Restore fails.
func (b *Backend) Restore(context.Context, string, string, []string) (snapshot.Restored, error) {
	return snapshot.Restored{}, backend.ErrNoSnapshots()
}

// Fork fails.
func (b *Backend) Fork(context.Context, string, string, []string, *backend.Rules, []string) ([]backend.Sandbox, error) {
	return nil, backend.ErrNoSnapshots()
}

// Compare fails.
func (b *Backend) Compare(context.Context, string, string, string, []vpath.Path, []string) (*backend.Compared, error) {
	return nil, backend.ErrNoSnapshots()
}
