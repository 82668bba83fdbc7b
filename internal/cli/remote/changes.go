package remote

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// Review shows what a sandbox changed at and below the paths; without paths,
// all. With namesOnly it has no contents. Its digest covers also what the digest
// shown does, but for what lies at and below the paths.
func (c *Client) Review(ctx context.Context, s backend.Sandbox, paths []vpath.Path, namesOnly bool, shown string) (*review.Review, error) {
	r := &sandboxv1.DiffRequest{SandboxId: string(s.Record.ID), Mount: s.Mount, Paths: wireconv.EncodeSelection(paths), NamesOnly: namesOnly, ShownDigest: shown}
	digest := ""
	var files []*sandboxv1.FileDiff
	var groups []*sandboxv1.ChangeGroup
	for {
		page, err := c.sandboxes.Diff(ctx, r)
		if err != nil {
			return nil, c.failed(err)
		}
		digest = page.Digest
		groups = append(groups, page.Groups...)
		files = append(files, page.Files...)
		if r.PageToken, err = stream.NextPage(r.PageToken, page.NextPageToken); err != nil {
			return nil, err
		}
		if r.PageToken == "" {
			break
		}
	}
	if digest != "" && !record.IsDigest(digest) {
		return nil, errdefs.New(errdefs.Internal, "the server sent an invalid digest")
	}
	return reviewOf(s, digest, files, groups)
}

func reviewOf(s backend.Sandbox, digest string, sent []*sandboxv1.FileDiff, groups []*sandboxv1.ChangeGroup) (*review.Review, error) {
	type key struct { // an own entry may be beside a change of what it takes the place of
		path vpath.Path
		own  bool
	}
	contents := map[key]*sandboxv1.FileDiff{}
	files := make([]review.FileDiff, len(sent))
	for i, d := range sent {
		f, err := wireconv.DecodeFileDiff(d)
		if err != nil {
			return nil, err
		}
		files[i], contents[key{f.Path, f.Own}] = f, d
	}
	return review.Of(s.Record.Name, s.Record.ID, s.Mount, digest, files, wireconv.DecodeGroups(groups, files), func(f *review.FileDiff) (review.Content, error) {
		return wireconv.DecodeContent(contents[key{f.Path, f.Own}], f)
	}), nil
}

// ShownOf is what the server showed in these messages.
func ShownOf(sent []*sandboxv1.FileDiff) (*apply.Shown, error) {
	review, err := reviewOf(backend.Sandbox{}, "", sent, nil)
	if err != nil {
		return nil, err
	}
	return apply.ShownOf(review)
}

// Apply brings changes into the codebase, or into the source of the mount that is meant, those that
// the digest reviewed names or all there are. If something stands in the way, the result tells
// what, beside the error.
func (c *Client) Apply(ctx context.Context, s backend.Sandbox, paths []vpath.Path, dryRun bool, reviewed string) (apply.Result, error) {
	return c.applyAs(ctx, s, backend.ApplyOptions{Paths: paths, DryRun: dryRun}, reviewed)
}

// applyAs is Apply of what o selects: paths or hunks.
func (c *Client) applyAs(ctx context.Context, s backend.Sandbox, o backend.ApplyOptions, reviewed string) (apply.Result, error) {
	r := &sandboxv1.ApplyRequest{
		SandboxId: string(s.Record.ID), Mount: s.Mount, Hunks: o.Hunks, DryRun: o.DryRun, ReviewedDigest: reviewed,
		OnConflict: wireconv.OnConflict.Encode(o.OnConflict),
	}
	if len(o.Hunks) == 0 {
		r.Paths = wireconv.EncodeSelection(o.Paths)
	}
	return c.apply(ctx, s, r)
}

func (c *Client) apply(ctx context.Context, s backend.Sandbox, r *sandboxv1.ApplyRequest) (apply.Result, error) {
	answer, err := c.sandboxes.Apply(ctx, r)
	if err = c.failed(err); !r.DryRun && errdefs.Is(err, errdefs.Precondition) {
		r.DryRun = true
		if result, dryErr := c.apply(ctx, s, r); errdefs.Is(dryErr, errdefs.Precondition) {
			result.Skip()
			return result, err
		}
	}
	if err != nil {
		return apply.Result{}, err
	}
	result, err := wireconv.DecodeApplied(answer)
	if err == nil && r.DryRun {
		err = apply.Refusal(s.ChangesRef(), result.Paths)
	}
	return result, err
}

// Discard forgets changes. It returns which, and which paths were written again
// meanwhile.
func (c *Client) Discard(ctx context.Context, s backend.Sandbox, paths []vpath.Path, dryRun bool) (apply.DiscardResult, error) {
	answer, err := c.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: string(s.Record.ID), Mount: s.Mount, Paths: wireconv.EncodeSelection(paths), DryRun: dryRun})
	if err != nil {
		return apply.DiscardResult{}, c.failed(err)
	}
	return wireconv.DecodeDiscarded(answer)
}
