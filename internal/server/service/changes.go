package service

import (
	"context"
	"fmt"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/codebase"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/supervise"
	"github.com/agentfense/agentfense/internal/vpath"
)

// mostTold bounds the paths of one answer; a number tells of the others.
const mostTold = 10_000

// outcomeOf and changeOf are outcomes and statuses on the wire.
var (
	outcomeOf = map[sandbox.Outcome]sandboxv1.Outcome{
		sandbox.Applied:  sandboxv1.Outcome_OUTCOME_APPLIED,
		sandbox.Present:  sandboxv1.Outcome_OUTCOME_PRESENT,
		sandbox.Kept:     sandboxv1.Outcome_OUTCOME_KEPT,
		sandbox.Conflict: sandboxv1.Outcome_OUTCOME_CONFLICT,
		sandbox.Refused:  sandboxv1.Outcome_OUTCOME_REFUSED,
		sandbox.Failed:   sandboxv1.Outcome_OUTCOME_FAILED,
		sandbox.Skipped:  sandboxv1.Outcome_OUTCOME_SKIPPED,

		sandbox.LeftOut:            sandboxv1.Outcome_OUTCOME_LEFT_OUT,
		sandbox.ChangedSinceReview: sandboxv1.Outcome_OUTCOME_CHANGED_SINCE_REVIEW,
	}
	changeOf = map[sandbox.Status]sandboxv1.ChangeStatus{
		sandbox.Added:    sandboxv1.ChangeStatus_CHANGE_STATUS_ADDED,
		sandbox.Modified: sandboxv1.ChangeStatus_CHANGE_STATUS_MODIFIED,
		sandbox.Deleted:  sandboxv1.ChangeStatus_CHANGE_STATUS_DELETED,
		sandbox.Retyped:  sandboxv1.ChangeStatus_CHANGE_STATUS_RETYPED,
	}
)

// selection reads which changes are meant. An empty path, as an unset variable
// leaves one, is none: read as the root it would be all of them. Errors: Invalid.
func selection(paths []string) ([]vpath.Path, error) {
	var list []vpath.Path
	for i, text := range paths {
		field := fmt.Sprintf("paths[%d]", i)
		if text == "" {
			return nil, fault.New(fault.Invalid, `%s: an empty path: leave it out for all, or name one ("/" is all)`, field)
		}
		p, err := parsePath(field, text)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// dropLive has a live supervisor forget entries of the delta; it is nil for a
// sandbox that does not run.
func dropLive(ctx context.Context, sb *sandbox.Sandbox) (func([]sandbox.Version) ([]vpath.Path, error), error) {
	client, err := supervise.Reach(ctx, sb.Dir())
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func(v []sandbox.Version) ([]vpath.Path, error) { return client.Drop(ctx, v) }, nil
}

// Apply brings changes into the codebase. What stands in the way is an error,
// but the answer of a dry run.
func (c *sandboxServer) Apply(ctx context.Context, r *sandboxv1.ApplyRequest) (*sandboxv1.ApplyResponse, error) {
	s := c.service
	sb, err := s.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	o := sandbox.ApplyOptions{DryRun: r.DryRun, Reviewed: r.ReviewedDigest}
	if o.Paths, err = selection(r.Paths); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	if o.Drop, err = dropLive(ctx, sb); err != nil {
		return nil, err
	}
	result, err := s.apply(ctx, sb, o)
	toTell := r.DryRun && len(result.Paths) > 0 && fault.Is(err, fault.Precondition)
	if err != nil && !toTell {
		return nil, withPaths(result, err)
	}
	if err == nil && !r.DryRun {
		if err := s.released(ctx, sb); err != nil {
			return nil, err
		}
	}
	if !mayKnowPolicy(ctx) {
		withoutReasons(result.Paths)
	}
	return wireApplied(result), nil
}

// apply carries changes over and tells the other sandboxes of the codebase.
func (s *Service) apply(ctx context.Context, sb *sandbox.Sandbox, o sandbox.ApplyOptions) (sandbox.ApplyResult, error) {
	files, err := s.codebases.Get(codebase.ID(sb.Record().Served.CodebaseID))
	if err != nil {
		return sandbox.ApplyResult{}, err
	}
	if _, linked := files.Linked(); linked || o.DryRun {
		return sb.Apply(ctx, o)
	}
	result, err, told := s.carryOver(ctx, files, sb, o)
	if told != nil {
		return result, told
	}
	return result, err
}

// unknownPolicy is why a path is refused, for who may not know the policy.
const unknownPolicy = "the policy does not let the sandbox write there"

// withoutReasons keeps the rules from a caller who may not know the policy.
func withoutReasons(paths []sandbox.PathResult) {
	for i := range paths {
		if paths[i].Outcome == sandbox.Refused {
			paths[i].Reason = unknownPolicy
		}
	}
}

func wireApplied(result sandbox.ApplyResult) *sandboxv1.ApplyResponse {
	listed := result.Listed()
	answer := &sandboxv1.ApplyResponse{
		ResultCount: int64(len(listed)), AppliedCount: int64(result.Count(sandbox.Applied)),
		WrittenAgain: texts(result.Changed[:min(len(result.Changed), mostTold)]),
	}
	for _, wanted := range []bool{false, true} { // what was applied comes last
		for _, p := range listed {
			if (p.Outcome == sandbox.Applied) == wanted && len(answer.Results) < mostTold {
				answer.Results = append(answer.Results, &sandboxv1.PathOutcome{
					Path: p.Path.Text(), Outcome: outcomeOf[p.Outcome], Reason: p.Reason, Status: changeOf[p.Status],
				})
			}
		}
	}
	return answer
}

// Discard lets a sandbox's view show the codebase again.
func (c *sandboxServer) Discard(ctx context.Context, r *sandboxv1.DiscardRequest) (*sandboxv1.DiscardResponse, error) {
	sb, err := c.service.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	o := sandbox.DiscardOptions{DryRun: r.DryRun}
	if o.Paths, err = selection(r.Paths); err != nil {
		return nil, err
	}
	if o.Drop, err = dropLive(context.WithoutCancel(ctx), sb); err != nil {
		return nil, err
	}
	result, err := sb.Discard(o)
	if err == nil && !r.DryRun {
		err = c.service.released(context.WithoutCancel(ctx), sb)
	}
	if err != nil {
		return nil, err
	}
	return &sandboxv1.DiscardResponse{
		Paths: texts(result.Paths[:min(len(result.Paths), mostTold)]), PathCount: int64(len(result.Paths)),
		WrittenAgain: texts(result.Changed[:min(len(result.Changed), mostTold)]),
	}, nil
}
