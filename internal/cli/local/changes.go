package local

import (
	"context"
	"errors"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// localChanges are the changes of a sandbox whose files can be read.
type localChanges struct {
	sb   *record.Sandbox
	lost error
}

// Changes opens the changes of a sandbox, in its workspace or in a mount.
func (b *Backend) Changes(ctx context.Context, name, mount string, again []string) (backend.Changes, error) {
	sb, err := b.Readable(ctx, name, mount, again)
	if err != nil {
		return nil, err
	}
	_, lost := sb.SourceLost()
	return &localChanges{sb, lost}, nil
}

// Readable opens a sandbox, or its mount, so that this process may read all of its changes.
// Errors: as Changes.
func (b *Backend) Readable(ctx context.Context, name, mount string, again []string) (*record.Sandbox, error) {
	sb, err := b.open(name)
	if err == nil {
		sb, err = sb.InMount(mount)
	}
	if err == nil {
		err = b.asOwner(ctx, sb, again)
	}
	return sb, err
}

// Pending lists the changes in the mounts of a sandbox. The caller has opened its Changes, and
// so may read its files.
func (b *Backend) Pending(_ context.Context, name string) ([]backend.MountChanges, error) {
	sb, err := b.open(name)
	if err != nil {
		return nil, err
	}
	var list []backend.MountChanges
	for _, part := range sb.Parts()[1:] {
		r, err := review.Open(part)
		if err != nil {
			return nil, err
		}
		list = append(list, backend.MountChanges{Mount: part.Mount(), Files: r.Files()})
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Sandbox has the record with the mount in place of the workspace, if it is about one.
func (c *localChanges) Sandbox() backend.Sandbox { return backend.Sandbox{Record: c.sb.Record()} }

func (c *localChanges) Ref() string { return c.sb.Ref() }

func (c *localChanges) Lost() error { return c.lost }

// Review shows what changed. What it shows with its content is stored beside what was
// shown before.
func (c *localChanges) Review(ctx context.Context, paths []vpath.Path, how backend.Detail) (*backend.Review, error) {
	base := ""
	if len(paths) > 0 && how == backend.Contents {
		var err error
		if base, err = c.shownBefore(ctx); err != nil {
			return nil, err
		}
	}
	r, err := review.Open(c.sb, paths...)
	if err != nil {
		return nil, err
	}
	remember := func() (string, error) {
		digest, err := r.Remember(base, r.Files())
		if errdefs.Is(err, errdefs.NotFound) { // base is kept no longer
			digest, err = r.Remember("", r.Files())
		}
		return digest, err
	}
	return &backend.Review{
		Review: r, Remember: remember,
		Note: func(digest string) error { return manifest.SetLastShown(c.sb, digest) },
	}, nil
}

// shownBefore returns the digest of what was shown before a part is, "" for
// nothing. Where nothing was shown and nothing runs, that is everything.
func (c *localChanges) shownBefore(ctx context.Context) (string, error) {
	last, err := manifest.LastShown(c.sb)
	if err != nil || last != "" {
		return last, err
	}
	live, err := client(ctx, c.sb)
	if err != nil || live != nil {
		return "", err
	}
	return manifest.StoreNow(c.sb)
}

// Apply brings changes into the source. A live supervisor forgets what it has of them.
func (c *localChanges) Apply(ctx context.Context, o backend.ApplyOptions) (result backend.Applied, err error) {
	options := apply.Options{Paths: o.Paths, Hunks: o.Hunks, DryRun: o.DryRun, Reviewed: o.Reviewed, Progress: o.Progress, Unreviewed: o.Unreviewed, Waiting: o.Waiting, Recovered: o.Recovered}
	switch options.OnConflict = o.OnConflict; {
	case o.Unreviewed:
		options.OnConflict = conflict.Leave
	case o.Attest: // nobody has looked at what a merge makes
		options.OnConflict = conflict.Stop
	}
	if options.To, err = c.target(ctx, o); err != nil {
		return result, err
	}
	if options.To != nil {
		result.To = string(options.To.Path)
	}
	shown, err := c.choose(ctx, o, &options)
	if err != nil {
		return result, err
	}
	options.AtStart = options.Reviewed == "" && o.Take != backend.TakeLatest
	if r := c.sb.Record(); r.IsUploaded() && !o.DryRun && o.To == "" {
		return result, errdefs.New(errdefs.Precondition, "sandbox %s: codebase %s is managed by a server: run apply with --endpoint", r.Name, r.Served.CodebaseID)
	}
	if options.Drop, err = api.DropLive(ctx, c.sb.Dir(), c.sb.Mount()); err != nil {
		return result, err
	}
	if o.Branch != "" {
		made, err := branch.Commit(ctx, c.sb, branch.Options{Options: options, Branch: o.Branch, Message: o.Message, Shown: shown})
		result.Result, result.Commit = made.Result, made.Commit
		if err == nil && o.Attest {
			result.Statement, err = made.Attest(c.sb, shown, about(options.Reviewed))
		}
		return result, err
	}
	result.Result, err = apply.Changes(ctx, c.sb, options)
	if o.Attest {
		err = errors.Join(err, c.attest(shown, &result, options.Reviewed))
	}
	return result, err
}

// choose says in options which state of the changes to apply. It returns that state if it is to be
// attested.
func (c *localChanges) choose(ctx context.Context, o backend.ApplyOptions, options *apply.Options) (shown manifest.Manifest, err error) {
	if o.Reviewed == "" && o.Take == backend.TakeShown {
		if options.Reviewed, err = manifest.LastShown(c.sb); err != nil {
			return nil, err
		}
	}
	if o.Attest {
		return c.attested(ctx, options)
	}
	return nil, nil
}

// target is the directory that gets the changes in place of the source, nil for the source or a
// branch.
func (c *localChanges) target(ctx context.Context, o backend.ApplyOptions) (*record.Source, error) {
	switch {
	case o.To != "":
		return apply.ResolveTarget(c.sb, o.To)
	case o.Branch != "":
		return nil, nil
	}
	return nil, settleSource(ctx, c.sb, o.Rebase)
}

// settleSource sees to it that the sandbox's source is there: if another directory
// is at its path, it becomes the source if rebase is set. Errors: *backend.ReplacedError.
func settleSource(ctx context.Context, sb *record.Sandbox, rebase bool) error {
	replaced, why := sb.SourceLost()
	if why == nil {
		return nil
	}
	if c, err := client(ctx, sb); err != nil || c != nil {
		return err // it runs, and has the old one open
	}
	switch {
	case !replaced:
		return errdefs.New(errdefs.KindOf(why), "%w; %s", why, backend.ElsewhereAdvice(sb.Ref()))
	case !rebase:
		return &backend.ReplacedError{Why: why, Name: sb.Ref()}
	}
	return changes.Rebase(sb)
}

// settleMounts sees to it that the sources of mounts with a delta are there. One without changes
// takes the directory that is at its path now. Errors: as settleSource.
func settleMounts(ctx context.Context, sb *record.Sandbox, rebase bool) error {
	for _, part := range sb.Parts()[1:] {
		if replaced, _ := part.SourceLost(); replaced && !rebase {
			changed, err := review.HasChanges(part)
			if err == nil {
				err = settleSource(ctx, part, !changed)
			}
			if err != nil {
				return err
			}
		} else if err := settleSource(ctx, part, rebase); err != nil {
			return err
		}
	}
	return nil
}

// Discard throws changes away.
func (c *localChanges) Discard(ctx context.Context, paths []vpath.Path, dryRun bool) (d backend.Discarded, err error) {
	drop, err := api.DropLive(ctx, c.sb.Dir(), c.sb.Mount())
	if err != nil {
		return d, err
	}
	if r, err := review.Open(c.sb, paths...); err == nil {
		d.Files, d.Groups = r.Files(), r.Groups()
		_ = r.Close() // it only read
	}
	d.DiscardResult, err = apply.Discard(c.sb, apply.DiscardOptions{Paths: paths, DryRun: dryRun, Drop: drop})
	return d, record.ExplainFull(err)
}

// NoteAll notes that all there is was shown, unless something runs.
func (c *localChanges) NoteAll(ctx context.Context) error {
	if live, err := client(ctx, c.sb); err != nil || live != nil {
		return nil //nolint:nilerr // who cannot be asked may run
	}
	return manifest.SetLastShown(c.sb, "")
}

// Synced is empty: nothing leaves a sandbox of this host by itself.
func (c *localChanges) Synced(context.Context) ([]vpath.Path, error) { return nil, nil }
