package service

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Apply applies changes to the codebase. Conflicts and refusals are an error, except for a dry run,
// which answers with them.
func (c *sandboxServer) Apply(ctx context.Context, r *sandboxv1.ApplyRequest) (*sandboxv1.ApplyResponse, error) {
	s := c.service
	a, err := wireconv.DecodeApply(r)
	if err != nil {
		return nil, err
	}
	sb, part, err := s.changesFor(ctx, a.Sandbox, a.Mount)
	if err == nil {
		err = s.permitApply(part)
	}
	if err != nil {
		return nil, err
	}
	o := a.Options
	if a.Branch == "" {
		ctx = context.WithoutCancel(ctx)
	}
	if o.Drop, err = api.DropLive(ctx, sb.Dir(), a.Mount); err != nil {
		return nil, err
	}
	result, err := s.take(ctx, part, o, a)
	report := o.DryRun && len(result.Paths) > 0 && errdefs.Is(err, errdefs.Precondition)
	if err != nil && !report {
		return nil, withoutSources(ctx, sb, withPaths(result.Result, err))
	}
	if err == nil && !o.DryRun && a.Branch == "" {
		if err := s.released(ctx, sb); err != nil {
			return nil, err
		}
	}
	if !mayKnowPolicy(ctx) {
		withoutReasons(result.Paths)
	}
	return wireconv.EncodeApplied(result), nil
}

// apply applies changes and notifies the other sandboxes of the codebase. Those of a mount go to
// its source, which no codebase counts and each sandbox watches.
func (s *Service) apply(ctx context.Context, sb *record.Sandbox, o apply.Options) (apply.Result, error) {
	if sb.Mount() != "" {
		return apply.Changes(ctx, sb, o)
	}
	files, err := s.codebases.Get(codebase.ID(sb.Record().Served.CodebaseID))
	if err != nil {
		return apply.Result{}, err
	}
	_, linked := files.Linked()
	if !linked {
		o.OnConflict = uploadedConflicts(o.OnConflict)
	}
	if linked || o.DryRun {
		return apply.Changes(ctx, sb, o)
	}
	result, err, tellErr := s.applyAndTell(ctx, files, sb, o)
	if tellErr != nil {
		return result, tellErr
	}
	return result, err
}

// uploadedConflicts is how conflicts with an uploaded codebase are resolved: texts are merged only
// if the request says how. Without that, a client may be bringing the same changes into the
// directory that it uploaded, by file: a merge would make the two differ.
func uploadedConflicts(how conflict.Resolution) conflict.Resolution {
	if how == conflict.Merge {
		return conflict.Stop
	}
	return how
}

// take applies or commits what a request selects.
func (s *Service) take(ctx context.Context, sb *record.Sandbox, o apply.Options, a wireconv.Apply) (result wireconv.Applied, err error) {
	switch {
	case a.Attest:
		return s.applyAttested(ctx, sb, o, a)
	case a.Branch != "":
		made, err := commit(ctx, sb, a, branch.Options{Options: o})
		return wireconv.Applied{Result: made.Result, Commit: made.Commit}, err
	}
	result.Result, err = s.apply(ctx, sb, o)
	return result, err
}

// commit commits changes to a branch. Whatever the client does with its repository, git stays in
// the source; the call's end ends git.
func commit(ctx context.Context, sb *record.Sandbox, a wireconv.Apply, o branch.Options) (result branch.Result, err error) {
	if sb.Mount() == "" && sb.Stored.IsUploaded() {
		return result, errdefs.New(errdefs.Precondition, "to_branch: codebase %s was uploaded, so the server does not commit to it: apply the changes, and commit where the directory is", sb.Record().Served.CodebaseID)
	}
	o.Branch, o.Message, o.For = a.Branch, a.Message, &a.Git
	return branch.Commit(ctx, sb, o)
}

// unknownPolicy is the reason of a refusal for a caller who may not know the policy.
const unknownPolicy = "the policy does not let the sandbox write there"

// withoutReasons hides the rules from a caller who may not know the policy.
func withoutReasons(paths []apply.PathResult) {
	for i := range paths {
		if paths[i].Outcome == apply.Refused {
			paths[i].Reason = unknownPolicy
		}
	}
}

// Discard deletes changes, so that the sandbox's view shows the codebase again.
func (c *sandboxServer) Discard(ctx context.Context, r *sandboxv1.DiscardRequest) (*sandboxv1.DiscardResponse, error) {
	d, err := wireconv.DecodeDiscard(r)
	if err != nil {
		return nil, err
	}
	sb, part, err := c.service.changesFor(ctx, d.Sandbox, d.Mount)
	if err != nil {
		return nil, err
	}
	o := d.Options
	if o.Drop, err = api.DropLive(context.WithoutCancel(ctx), sb.Dir(), d.Mount); err != nil {
		return nil, err
	}
	result, err := apply.Discard(part, o)
	if err == nil && !o.DryRun {
		err = c.service.released(context.WithoutCancel(ctx), sb)
	}
	if err != nil {
		return nil, withoutSources(ctx, sb, err)
	}
	return wireconv.EncodeDiscarded(result), nil
}
