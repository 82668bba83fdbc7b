package remote

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Merge brings the changes of a sandbox into another one. If nothing was shown of that one since
// its last command, its changes before the merge count as shown, so that an apply leaves out what
// came with the merge until that was shown.
func (b *Backend) Merge(ctx context.Context, o backend.MergeOptions, _ []string) (merge.Result, error) {
	into, err := b.Sandbox(ctx, o.Into)
	if err != nil {
		return merge.Result{}, err
	}
	from, err := b.Sandbox(ctx, o.From)
	if err != nil {
		return merge.Result{}, err
	}
	r := &sandboxv1.MergeSandboxRequest{
		SandboxId: string(into.Record.ID), FromSandboxId: string(from.Record.ID), Snapshot: o.Snapshot,
		Paths: wireconv.EncodeSelection(o.Paths), OnConflict: wireconv.Resolution.Encode(o.Resolve), DryRun: o.DryRun,
	}
	if o.DryRun {
		return b.merge(ctx, r)
	}
	if into.Status == record.Running {
		return merge.Result{}, errdefs.New(errdefs.Precondition, "sandbox %s: running; %s", into.Record.Name, backend.StopFirst(into.Record.Name))
	}
	noted, err := b.noteUnseen(ctx, into)
	if err != nil {
		return merge.Result{}, err
	}
	done, err := b.merge(ctx, r)
	if errdefs.Is(err, errdefs.Precondition) {
		r.DryRun = true
		if planned, dryErr := b.merge(ctx, r); dryErr == nil && len(planned.Conflicts) > 0 {
			done, err = planned, nil
		}
	}
	if err == nil && noted && done.Kept.Number == 0 {
		err = b.noteShown(into, backend.Reviewed{})
	}
	return done, err
}

// noteUnseen notes the present changes of a sandbox as shown, if none are, and reports whether it
// did.
func (b *Backend) noteUnseen(ctx context.Context, sb backend.Sandbox) (bool, error) {
	last, err := b.lastShown(sb)
	if errdefs.Is(err, errdefs.NotFound) { // of an earlier agentfense
		err = nil
	}
	if err != nil || last.Digest != "" {
		return false, err
	}
	now, err := reviewNow(ctx, b.Client, sb, nil)
	if err != nil {
		return false, err
	}
	return true, b.noteShown(sb, now)
}

func (b *Backend) merge(ctx context.Context, r *sandboxv1.MergeSandboxRequest) (merge.Result, error) {
	answer, err := b.snapshots.MergeSandbox(ctx, r)
	if err != nil {
		return merge.Result{}, b.failed(err)
	}
	return wireconv.DecodeMerged(answer)
}
