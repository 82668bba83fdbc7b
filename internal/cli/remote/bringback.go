package remote

import (
	"context"
	"errors"
	"io"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// admitting is put, which gets nothing but what was shown.
func admitting(r backend.Reviewed, put func(apply.CarriedChange, io.Reader) error) func(apply.CarriedChange, io.Reader) error {
	if r.Shown == nil {
		return put
	}
	return func(change apply.CarriedChange, content io.Reader) error {
		admitted, err := r.Shown.Admit(change)
		if err != nil {
			return err
		}
		return put(admitted, content)
	}
}

// reviewNow is what is there now.
func reviewNow(ctx context.Context, c *Client, sb backend.Sandbox, paths []vpath.Path) (now backend.Reviewed, err error) {
	review, err := c.Review(ctx, sb, paths, false, "")
	if err != nil {
		return now, err
	}
	if now.Shown, err = apply.ShownOf(review); err != nil {
		return now, err
	}
	now.Digest, err = review.Remember("", nil)
	return now, err
}

// BringBack brings changes of a server's sandbox into the directory u that was
// uploaded for it, and then into the codebase, so that both hold the same. Without a
// digest it takes what is there now. progress may be nil. Errors: those of
// apply.Upload and of c; Internal for what was not shown.
func BringBack(ctx context.Context, c *Client, u *uploaded.Directory, sb backend.Sandbox, paths []vpath.Path, dryRun bool, take backend.Reviewed, progress func(tried, total int)) (apply.Result, error) {
	if take.Digest == "" { // so that both get the same
		now, err := reviewNow(ctx, c, sb, paths)
		if err != nil {
			return apply.Result{}, err
		}
		take.Digest, take.Shown = now.Digest, now.Shown
	}
	fetch := func(put func(apply.CarriedChange, io.Reader) error) error {
		return c.Changes(ctx, sb, paths, take.Digest, admitting(take, put))
	}
	result, err := apply.Upload(ctx, u, sb.Record.Name, fetch, dryRun, progress)
	if dryRun {
		return result, err
	}
	return result, errors.Join(err, settle(ctx, c, sb, paths, take, &result))
}

// settle has the server bring into the codebase what the directory has now.
func settle(ctx context.Context, c *Client, sb backend.Sandbox, paths []vpath.Path, take backend.Reviewed, result *apply.Result) error {
	var done []vpath.Path
	left := map[vpath.Path]bool{} // what is not here, and what it is in
	own := map[vpath.Path]bool{}  // what holds what no apply takes
	for _, r := range result.Paths {
		switch r.Outcome {
		case apply.Applied, apply.Present:
			done = append(done, r.Path)
		case apply.ChangedSinceReview, apply.Kept: // the server leaves them out, too
		case apply.LeftOut: // and these, unless they are named by what they are in
			for dir := range r.Path.Ancestors() {
				own[dir] = true
			}
		default:
			left[r.Path] = true
			for dir := range r.Path.Ancestors() {
				left[dir] = true
			}
		}
	}
	if len(done) == 0 {
		return nil
	}
	if len(left) > 0 { // a directory would stand for all that is in it
		paths = slices.DeleteFunc(done, func(p vpath.Path) bool { return left[p] || own[p] })
		if len(paths) == 0 { // which would stand for everything
			return nil
		}
	}
	settled, err := c.apply(context.WithoutCancel(ctx), sb, &sandboxv1.ApplyRequest{
		Paths: wireconv.EncodeSelection(paths), ReviewedDigest: take.Digest, Attest: take.Attest != nil,
	})
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "codebase %s: the changes were applied locally but not yet to the codebase: %w", sb.Record.Served.CodebaseID, err)
	}
	result.Changed = settled.Changed
	if take.Attest != nil {
		take.Attest(settled.Statement)
	}
	return nil
}
