package service

import (
	"context"
	"fmt"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// selection reads which changes are meant. An empty path, as an unset variable
// leaves one, is none: read as the root it would be all of them. Errors: Invalid.
func selection(paths []string) ([]vpath.Path, error) {
	var list []vpath.Path
	for i, text := range paths {
		field := fmt.Sprintf("paths[%d]", i)
		if text == "" {
			return nil, errdefs.New(errdefs.Invalid, `%s: an empty path: leave it out for all, or name one ("/" is all)`, field)
		}
		p, err := parsePath(field, text)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// Apply brings changes into the codebase. What stands in the way is an error,
// but the answer of a dry run.
func (c *sandboxServer) Apply(ctx context.Context, r *sandboxv1.ApplyRequest) (*sandboxv1.ApplyResponse, error) {
	s := c.service
	sb, err := s.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	o := apply.Options{DryRun: r.DryRun, Reviewed: r.ReviewedDigest}
	if o.Paths, err = selection(r.Paths); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	if o.Drop, err = api.DropLive(ctx, sb.Dir()); err != nil {
		return nil, err
	}
	result, err := s.apply(ctx, sb, o)
	toTell := r.DryRun && len(result.Paths) > 0 && errdefs.Is(err, errdefs.Precondition)
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
	return wireconv.EncodeApplied(result), nil
}

// apply carries changes over and tells the other sandboxes of the codebase.
func (s *Service) apply(ctx context.Context, sb *record.Sandbox, o apply.Options) (apply.Result, error) {
	files, err := s.codebases.Get(codebase.ID(sb.Record().Served.CodebaseID))
	if err != nil {
		return apply.Result{}, err
	}
	if _, linked := files.Linked(); linked || o.DryRun {
		return apply.Changes(ctx, sb, o)
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
func withoutReasons(paths []apply.PathResult) {
	for i := range paths {
		if paths[i].Outcome == apply.Refused {
			paths[i].Reason = unknownPolicy
		}
	}
}

// Discard lets a sandbox's view show the codebase again.
func (c *sandboxServer) Discard(ctx context.Context, r *sandboxv1.DiscardRequest) (*sandboxv1.DiscardResponse, error) {
	sb, err := c.service.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	o := apply.DiscardOptions{DryRun: r.DryRun}
	if o.Paths, err = selection(r.Paths); err != nil {
		return nil, err
	}
	if o.Drop, err = api.DropLive(context.WithoutCancel(ctx), sb.Dir()); err != nil {
		return nil, err
	}
	result, err := apply.Discard(sb, o)
	if err == nil && !r.DryRun {
		err = c.service.released(context.WithoutCancel(ctx), sb)
	}
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeDiscarded(result), nil
}
