package service

import (
	"cmp"
	"context"
	"errors"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/between"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot/freeze"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// snapshotServer answers the calls of SnapshotService.
type snapshotServer struct {
	sandboxv1.UnimplementedSnapshotServiceServer
	service *Service
}

// CreateSnapshot takes a snapshot.
func (c *snapshotServer) CreateSnapshot(ctx context.Context, m *sandboxv1.CreateSnapshotRequest) (*sandboxv1.Snapshot, error) {
	s := c.service
	r, err := wireconv.DecodeCreateSnapshot(m)
	if err != nil {
		return nil, err
	}
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx = context.WithoutCancel(ctx)
	made, err := snapshot.Take(sb, snapshot.Snapshot{Label: r.Label}, freeze.Of(ctx, sb))
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeSnapshot(&made), nil
}

// takeCheckpoint takes the snapshot before the command of a job, if it is asked for. It holds the
// lock of lives: else a stop and a discard could end the hold of the sync between the freeze and
// the look at it.
func (s *Service) takeCheckpoint(ctx context.Context, j *job) error {
	if j.checkpoint == nil {
		return nil
	}
	defer s.lives.lock(string(j.sandbox.ID()))()
	ctx = context.WithoutCancel(ctx)
	_, err := snapshot.Take(j.sandbox, snapshot.Before(j.checkpoint), func() (map[string]string, error) {
		layers, err := j.client.Freeze(ctx)
		if errdefs.Is(err, errdefs.NotFound) {
			err = j.gone
		}
		return layers, err
	})
	return err
}

// ListSnapshots lists the snapshots of a sandbox.
func (c *snapshotServer) ListSnapshots(ctx context.Context, m *sandboxv1.ListSnapshotsRequest) (*sandboxv1.ListSnapshotsResponse, error) {
	sb, err := c.service.sandboxFor(ctx, m)
	if err != nil {
		return nil, err
	}
	t, err := snapshot.TreeOf(sb)
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeSnapshots(&t), nil
}

// lockedSnapshot is locked, for the sandbox of a snapshot, with the reserve of a full disk until
// unlock.
func (s *Service) lockedSnapshot(ctx context.Context, m wireconv.SnapshotRequest) (sb *record.Sandbox, ref string, unlock func(), err error) {
	r, err := wireconv.DecodeSnapshotRef(m)
	if err != nil {
		return nil, "", nil, err
	}
	sb, unlockSandbox, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, "", nil, err
	}
	end := s.home.MakeRoom()
	return sb, r.Ref, func() { end(); unlockSandbox() }, nil
}

// DeleteSnapshot removes a snapshot.
func (c *snapshotServer) DeleteSnapshot(ctx context.Context, m *sandboxv1.DeleteSnapshotRequest) (*sandboxv1.Empty, error) {
	sb, ref, unlock, err := c.service.lockedSnapshot(ctx, m)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := snapshot.Remove(sb, ref); err != nil {
		return nil, err
	}
	return &sandboxv1.Empty{}, nil
}

// RestoreSnapshot brings a sandbox that is not running back to a snapshot.
func (c *snapshotServer) RestoreSnapshot(ctx context.Context, m *sandboxv1.RestoreSnapshotRequest) (*sandboxv1.RestoreSnapshotResponse, error) {
	sb, ref, unlock, err := c.service.lockedSnapshot(ctx, m)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := apply.CompleteStopped(sb); err != nil {
		return nil, withoutSources(ctx, sb, err)
	}
	release, err := c.service.lockStopped(ctx, sb, record.PurposeRestore)
	if err != nil {
		return nil, err
	}
	defer release()
	restored, err := snapshot.Restore(sb, ref, false)
	if err != nil {
		return nil, withoutSources(ctx, sb, err)
	}
	return wireconv.EncodeRestored(&restored), nil
}

// lockStopped locks a sandbox that is not running, so that neither a supervisor nor a sync uses its
// delta until release is called. The caller holds its lock of lives. Errors: Precondition if it is
// running.
func (s *Service) lockStopped(ctx context.Context, sb *record.Sandbox, why record.LockReason) (release func(), err error) {
	_, err = supervise.DialSettled(ctx, sb, settlePatience)
	switch {
	case err == nil:
		return nil, errdefs.WithReason(errdefs.New(errdefs.Precondition, "sandbox %s: sandbox is running: stop it first", sb.ID()), errdefs.SandboxRunning)
	case !errdefs.Is(err, errdefs.NotFound):
		return nil, err
	}
	if err := launch.Cleanup(sb); err != nil {
		return nil, err
	}
	unlock := s.syncs.lock(string(sb.ID()))
	lock, err := sb.TryLock(why)
	if err != nil {
		unlock()
		return nil, err
	}
	return func() {
		lock.Release()
		unlock()
	}, nil
}

// CompareStates lists how two states differ. A page token is the last path of the page before.
func (c *snapshotServer) CompareStates(ctx context.Context, m *sandboxv1.CompareStatesRequest) (answer *sandboxv1.DiffResponse, err error) {
	s := c.service
	r, err := wireconv.DecodeCompareStates(m)
	if err != nil {
		return nil, err
	}
	from, to, err := s.comparable(ctx, r.From.Sandbox, r.To.Sandbox, r.Mount)
	if err != nil {
		return nil, err
	}
	earlier, err := between.Open(from, r.From.Ref, r.Mount)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, earlier.Close()) }()
	later, err := between.Open(to, r.To.Ref, r.Mount)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, later.Close()) }()
	if err := between.CheckSources(earlier, later, string(from.ID()), string(to.ID())); err != nil {
		return nil, err
	}
	rs, err := between.Compare(string(to.ID()), earlier, later, r.Paths...)
	if err != nil {
		return nil, err
	}
	p, err := pageOf(ctx, rs, r.Page, r.NamesOnly)
	if err != nil {
		return nil, err
	}
	for _, d := range p.diffs { // no apply takes them
		d.Id, d.ModeId, d.Hunks = "", "", nil
	}
	answer = &sandboxv1.DiffResponse{Files: p.diffs}
	if !p.isLast {
		answer.NextPageToken = p.files[len(p.files)-1].Path.Text()
	}
	return answer, nil
}

// comparable returns two sandboxes of the caller, of which the workspace or a mount may be
// compared. Workspaces have one codebase; the sources of mounts are compared when the states are
// open. Errors: as sandbox; Precondition for two codebases; Denied for a mount that is no longer
// below a root.
func (s *Service) comparable(ctx context.Context, from, to record.ID, mount string) (x, y *record.Sandbox, err error) {
	if y, err = s.sandbox(ctx, to); err != nil {
		return nil, nil, err
	}
	if x, err = s.sandbox(ctx, from); err != nil {
		return nil, nil, err
	}
	if mount != "" {
		return x, y, cmp.Or(s.permitRead(x, mount), s.permitRead(y, mount))
	}
	if a, b := x.Record().Served.CodebaseID, y.Record().Served.CodebaseID; a != b {
		return nil, nil, errdefs.New(errdefs.Precondition, "sandboxes %s and %s: they have two codebases, %s and %s", x.ID(), y.ID(), a, b)
	}
	return x, y, nil
}

// hasSnapshots reports whether a sandbox has snapshots that somebody asked for.
func hasSnapshots(sb *record.Sandbox) (bool, error) {
	l, err := snapshot.Read(sb)
	return l.Asked() > 0, err
}

// sweepRemoved removes the layers and boards that nothing refers to after a removal.
func (s *Service) sweepRemoved(ctx context.Context) {
	if err := errors.Join(snapshot.Sweep(s.home), board.Sweep(s.home)); err != nil {
		s.log.WarnContext(ctx, "cannot remove unused layers and boards", "err", err)
	}
}

// removeForks removes forks of which not all could be made.
func (s *Service) removeForks(ctx context.Context, forks []*record.Sandbox) error {
	var errs []error
	for _, fork := range slices.Backward(forks) {
		errs = append(errs, s.home.Remove(fork.Name()))
		if err := s.store.RemoveSandbox(ctx, fork.ID()); !errdefs.Is(err, errdefs.NotFound) {
			errs = append(errs, err)
		}
	}
	s.sweepRemoved(ctx)
	return errors.Join(errs...)
}
