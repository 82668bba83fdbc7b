package remote

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// serverChanges are the changes of a server's sandbox.
type serverChanges struct {
	b           *Backend
	name, mount string
	sb          backend.Sandbox // once it is found
}

// Changes are found when something is asked of them. The server can always read them.
func (b *Backend) Changes(_ context.Context, name, mount string, _ []string) (backend.Changes, error) {
	return &serverChanges{b: b, name: name, mount: mount}, nil
}

// find finds the sandbox, once.
func (c *serverChanges) find(ctx context.Context) (err error) {
	if c.sb.Record.ID == "" {
		c.sb, err = c.b.Sandbox(ctx, c.name)
		c.sb.Mount = c.mount
	}
	return err
}

// Pending lists the changes in the mounts of a sandbox.
func (b *Backend) Pending(ctx context.Context, name string) ([]backend.MountChanges, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	return b.inMounts(ctx, sb)
}

func (b *Backend) inMounts(ctx context.Context, sb backend.Sandbox) ([]backend.MountChanges, error) {
	var list []backend.MountChanges
	for _, m := range sb.Record.Mounts {
		if !m.IsWritable() {
			continue
		}
		sb.Mount = m.Name
		r, err := b.Review(ctx, sb, nil, true, "")
		if err != nil {
			return nil, err
		}
		list = append(list, backend.MountChanges{Mount: m.Name, Files: r.Files()})
	}
	return list, nil
}

func (c *serverChanges) Sandbox() backend.Sandbox { return c.sb }

// Ref also works before the sandbox is found.
func (c *serverChanges) Ref() string {
	ref := c.sb
	if ref.Record.ID == "" {
		ref.Record.Name, ref.Mount = c.name, c.mount
	}
	return ref.ChangesRef()
}

// Lost is nil: a codebase stays where it is.
func (c *serverChanges) Lost() error { return nil }

// Review shows what changed, beside what was shown before.
func (c *serverChanges) Review(ctx context.Context, paths []vpath.Path, how backend.Detail) (*backend.Review, error) {
	if err := c.find(ctx); err != nil {
		return nil, err
	}
	var base backend.Reviewed
	if len(paths) > 0 && how == backend.Contents {
		var err error
		if base, err = c.shownBefore(ctx); err != nil {
			return nil, err
		}
	}
	r, err := c.b.Review(ctx, c.sb, paths, how == backend.Names, base.Digest)
	if base.Digest != "" && errdefs.Is(err, errdefs.NotFound) { // base is kept no longer
		base = backend.Reviewed{}
		r, err = c.b.Review(ctx, c.sb, paths, false, "")
	}
	if err != nil {
		return nil, err
	}
	return &backend.Review{
		Review:   r,
		Remember: func() (string, error) { return r.Remember("", r.Files()) },
		Note: func(digest string) error {
			shown, err := apply.ShownOf(r)
			if err != nil {
				return err
			}
			return c.b.noteShown(c.sb, backend.Reviewed{Digest: digest, Shown: shown.Beside(base.Shown, paths)})
		},
	}, nil
}

// NoteAll notes that all there is was shown, unless something runs.
func (c *serverChanges) NoteAll(ctx context.Context) error {
	now, err := c.b.Sandbox(ctx, c.name)
	if err != nil || now.Status == record.Running {
		return err
	}
	now.Mount = c.mount
	return c.b.noteShown(now, backend.Reviewed{})
}

// shownBefore returns what was shown before a part is. Where nothing was shown and
// nothing runs, that is everything.
func (c *serverChanges) shownBefore(ctx context.Context) (backend.Reviewed, error) {
	last, err := c.b.lastShown(c.sb)
	if errdefs.Is(err, errdefs.NotFound) { // of an earlier agentfense: what is shown now counts alone
		return last, nil
	}
	if err != nil || last.Digest != "" || c.sb.Status == record.Running {
		return last, err
	}
	return reviewNow(ctx, c.b.Client, c.sb, nil)
}

// take is what an apply takes. Of a digest from elsewhere it is not known here what
// was shown.
func (c *serverChanges) take(ctx context.Context, o backend.ApplyOptions) (backend.Reviewed, error) {
	var last backend.Reviewed
	var err error
	switch {
	case o.Reviewed != "" || o.Take == backend.TakeShown:
		if last, err = c.b.lastShown(c.sb); o.Reviewed != "" && o.Reviewed != last.Digest {
			return backend.Reviewed{Digest: o.Reviewed}, nil
		}
		if err != nil || last.Digest != "" {
			return last, err
		}
	case o.Take == backend.TakeLatest:
		return last, nil
	}
	switch {
	case c.sb.Status != record.Running:
		return last, nil
	case o.Attest:
		return last, attest.ErrUnseen(c.sb.ChangesRef())
	}
	return reviewNow(ctx, c.b.Client, c.sb, o.Paths)
}

// Apply brings changes into the directory that was uploaded for the sandbox, and then
// into the codebase, which is the same again; or into the codebase alone, if no
// directory was uploaded from here. Those of a mount go to its source, on the server's host.
func (c *serverChanges) Apply(ctx context.Context, o backend.ApplyOptions) (result backend.Applied, err error) {
	switch {
	case o.To != "":
		return result, localOnly("to")
	case o.Rebase:
		return result, localOnly("rebase")
	}
	if err := c.find(ctx); err != nil {
		return result, err
	}
	take, err := c.take(ctx, o)
	if err != nil {
		return result, err
	}
	listed, err := c.b.Review(ctx, c.sb, o.Paths, true, "")
	if err != nil {
		return result, err
	}
	u, err := c.b.uploadOf(c.sb)
	if err != nil {
		return result, err
	}
	switch {
	case u != nil && o.Branch != "":
		return result, errdefs.New(errdefs.Unsupported, "sandbox %s: its directory was uploaded, so the server does not commit to it; apply the changes, and commit them here", c.sb.Record.Name)
	case u != nil && len(o.Hunks) > 0:
		return result, errdefs.New(errdefs.Unsupported, "sandbox %s: hunks cannot be applied to a directory that was uploaded, which is recorded by file; apply whole files", c.sb.Record.Name)
	case u != nil && o.OnConflict != conflict.Merge:
		return result, errdefs.New(errdefs.Unsupported, "sandbox %s: texts of a directory that was uploaded are not merged: apply the other paths, and discard those in conflict", c.sb.Record.Name)
	case u != nil:
		if o.Attest {
			take.Attest = func(statement []byte) { result.Statement = statement }
		}
		result.Result, err = BringBack(ctx, c.b.Client, u, c.sb, o.Paths, o.DryRun, take, o.Progress)
	default:
		err = c.applyThere(ctx, o, take.Digest, &result)
	}
	showAs(listed, &result.Result)
	return result, err
}

// applyThere applies on the server's host, or commits there.
func (c *serverChanges) applyThere(ctx context.Context, o backend.ApplyOptions, reviewed string, result *backend.Applied) error {
	r := &sandboxv1.ApplyRequest{
		Hunks: o.Hunks, DryRun: o.DryRun, ReviewedDigest: reviewed, ToBranch: o.Branch, Message: o.Message, Attest: o.Attest,
		OnConflict: wireconv.Resolution.Encode(o.OnConflict),
	}
	if len(o.Hunks) == 0 {
		r.Paths = wireconv.EncodeSelection(o.Paths)
	}
	switch {
	case o.Branch != "":
		by, err := c.b.author()
		if err != nil {
			return err
		}
		r.GitUser = by
	case c.mount == "":
		result.Codebase = c.sb.Record.Served.CodebaseID
	}
	done, err := c.b.apply(ctx, c.sb, r)
	result.Result, result.Commit, result.Statement = done.Result, done.Commit, done.Statement
	return err
}

// author is by whom this user's commits are.
func (b *Backend) author() (*sandboxv1.GitUser, error) { return b.gitUser("GIT_AUTHOR_") }

// committer is by whom commits of others are made anew.
func (b *Backend) committer() (*sandboxv1.GitUser, error) { return b.gitUser("GIT_COMMITTER_") }

// gitUser is this user as git knows it, with what the variables with the prefix say. Errors:
// Precondition.
func (b *Backend) gitUser(prefix string) (*sandboxv1.GitUser, error) {
	u := gitconfig.Of(b.getenv, "/")
	u = gitconfig.User{Name: cmp.Or(b.getenv(prefix+"NAME"), u.Name), Email: cmp.Or(b.getenv(prefix+"EMAIL"), u.Email)}
	if u.Name == "" || u.Email == "" {
		return nil, errdefs.New(errdefs.Precondition, "git does not know who you are: set it with git config --global user.name and git config --global user.email")
	}
	return wireconv.EncodeGit(u), nil
}

// showAs adds to a result how a review shows its paths, which a server's apply does
// not say.
func showAs(r *review.Review, result *apply.Result) {
	files := map[vpath.Path]review.FileDiff{}
	for _, f := range r.Files() {
		files[f.Path] = f
	}
	for i := range result.Paths {
		p := &result.Paths[i]
		f := files[p.Path]
		p.Mark, p.Group, p.RenamedFrom, p.RenamedTo = cmp.Or(p.Mark, f.Mark), f.Group, f.RenamedFrom, f.RenamedTo
	}
	result.Groups = r.Groups()
}

// Discard throws changes away.
func (c *serverChanges) Discard(ctx context.Context, paths []vpath.Path, dryRun bool) (d backend.Discarded, err error) {
	if err := c.find(ctx); err != nil {
		return d, err
	}
	if r, err := c.b.Review(ctx, c.sb, paths, true, ""); err == nil {
		d.Files, d.Groups = r.Files(), r.Groups()
	}
	d.DiscardResult, err = c.b.Discard(ctx, c.sb, paths, dryRun)
	return d, err
}

// Synced tells from the audit log what the server brought into the codebase.
func (c *serverChanges) Synced(ctx context.Context) ([]vpath.Path, error) {
	if err := c.find(ctx); err != nil {
		return nil, err
	}
	if sync := c.sb.Record.Served.Sync; sync == "" || sync == config.SyncManual || c.sb.Mount != "" {
		return nil, nil
	}
	synced := map[vpath.Path]bool{}
	err := c.b.Client.Audit(ctx, string(c.sb.Record.ID), 0, false, func(r audit.Record) error {
		if applied, ok := r.Event.(audit.Applied); ok && applied.Mount == "" {
			for _, p := range applied.Paths {
				synced[vpath.Path(p)] = true
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(synced)), err
}

// serverView is what a server's sandbox sees.
type serverView struct {
	client *Client
	sb     backend.Sandbox
}

// View finds a sandbox.
func (b *Backend) View(ctx context.Context, name, mount string, _ []string) (backend.View, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	sb.Mount = mount
	return serverView{b.Client, sb}, nil
}

func (v serverView) Close() {}

func (v serverView) Lost() error { return nil }

func (v serverView) Stat(ctx context.Context, path vpath.Path) (readview.Entry, error) {
	entries, err := v.client.ListView(ctx, v.sb, path, true)
	if err != nil {
		return readview.Entry{}, err
	}
	if len(entries) != 1 {
		return readview.Entry{}, errdefs.New(errdefs.Internal, "%s: the server describes %d files", path, len(entries))
	}
	return entries[0], nil
}

func (v serverView) List(ctx context.Context, dir vpath.Path) ([]readview.Entry, error) {
	return v.client.ListView(ctx, v.sb, dir, false)
}

func (v serverView) Copy(ctx context.Context, w io.Writer, path vpath.Path) error {
	return v.client.ReadView(ctx, w, v.sb, path)
}
