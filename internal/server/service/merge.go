package service

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot/freeze"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// MergeSandbox brings the changes of a sandbox into another one. As with Apply, conflicts are an
// error, except for a dry run, which answers with them.
func (c *snapshotServer) MergeSandbox(ctx context.Context, m *sandboxv1.MergeSandboxRequest) (*sandboxv1.MergeSandboxResponse, error) {
	r, err := wireconv.DecodeMergeSandbox(m)
	if err != nil {
		return nil, err
	}
	from, into, unlock, err := c.service.lockedPair(ctx, r.From, r.Into)
	if err != nil {
		return nil, err
	}
	defer unlock()
	result, err := c.service.merge(ctx, from, into, &r)
	if err != nil {
		return nil, withoutSources(ctx, into, withoutSources(ctx, from, err))
	}
	if len(result.Conflicts) > 0 && !r.DryRun {
		return nil, mergeConflicts(from, into, result.Conflicts)
	}
	if !mayKnowPolicy(ctx) {
		for i := range result.Conflicts {
			if result.Conflicts[i].Kind == conflict.Refused {
				result.Conflicts[i].Reason = unknownPolicy
			}
		}
	}
	return wireconv.EncodeMerged(&result), nil
}

// merge merges what a request says. The caller holds the locks of lives of both sandboxes.
func (s *Service) merge(ctx context.Context, from, into *record.Sandbox, r *wireconv.Merge) (merge.Result, error) {
	defer s.home.MakeRoom()()
	whole := context.WithoutCancel(ctx)
	if !r.DryRun {
		release, err := s.lockStopped(whole, into, record.PurposeMerge)
		if err != nil {
			return merge.Result{}, err
		}
		defer release()
	}
	return merge.Merge(ctx, merge.Options{
		Into: into, From: from, Snapshot: r.Snapshot, Freeze: freeze.Of(whole, from),
		Paths: r.Paths, Resolve: r.Resolve, DryRun: r.DryRun,
	})
}

// lockedPair is comparable, with the locks of both sandboxes. Two calls that want the same two take
// their locks in the same order.
func (s *Service) lockedPair(ctx context.Context, from, into record.ID) (x, y *record.Sandbox, unlock func(), err error) {
	if _, _, err := s.comparable(ctx, from, into, ""); err != nil {
		return nil, nil, nil, err
	}
	unlock = s.lives.lock(string(min(from, into)))
	if from != into {
		first, second := unlock, s.lives.lock(string(max(from, into)))
		unlock = func() {
			second()
			first()
		}
	}
	if x, y, err = s.comparable(ctx, from, into, ""); err != nil {
		unlock()
		return nil, nil, nil, err
	}
	return x, y, unlock, nil
}

// mergeConflicts is the error of a merge with conflicts. It has their paths, as withPaths does.
func mergeConflicts(from, into *record.Sandbox, conflicts []merge.Conflict) error {
	err := errdefs.New(errdefs.Precondition, "merge %s into %s: nothing was changed: %d in conflict: decide with on_conflict, or name the paths to merge; dry_run lists the conflicts", from.Name(), into.Name(), len(conflicts))
	failure := &errdetails.PreconditionFailure{}
	left := maxDetailBytes - sentBytes(err.Error())
	for _, c := range conflicts {
		v := &errdetails.PreconditionFailure_Violation{Type: string(apply.Conflict), Subject: c.Path.Text()}
		if c.Kind == conflict.Refused {
			v.Type = string(apply.Refused)
		}
		if left -= violationBytes(v); left < 0 {
			break
		}
		failure.Violations = append(failure.Violations, v)
	}
	return &detailed{err, failure}
}
