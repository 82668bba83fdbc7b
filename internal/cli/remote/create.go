package remote

import (
	"context"
	"errors"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Check refuses what no sandbox of a server can have.
func (b *Backend) Check(n backend.NewSandbox) error {
	switch {
	case n.Toolchains:
		return localOnly("toolchains")
	case n.Ask != nil && n.Ask.Hook != "":
		return localOnly("ask-hook")
	case n.Git.IsClean() && n.CodebaseID == "":
		return errdefs.New(errdefs.Unsupported, "--git %s: on a server, it needs a linked codebase, because commits come back to its repository: link the directory and name it with --codebase ID", n.Git)
	case n.Rebase:
		return localOnly("rebase")
	case n.Limits.Timeout > 0 && !n.ForCommand: // it is of each command, not of the sandbox
		return localOnly("timeout")
	case len(n.Secrets) > 0:
		return errdefs.New(errdefs.Unsupported, "--secret NAME@HOST: works only on this host; on a server, name a secret of its configuration: --secret NAME")
	case len(n.AllowNet)+len(n.ServerSecrets)+len(n.Publish) == 0 && n.Net != record.NetNone:
		return errdefs.New(errdefs.Unsupported, "--net %s: works only on this host, not on a server", n.Net)
	}
	_, err := mountsOf(n)
	return err
}

// Create makes a sandbox of a codebase that is there, or of a directory that is uploaded.
func (b *Backend) Create(ctx context.Context, n backend.NewSandbox) (backend.Sandbox, error) {
	if _, err := wireconv.EncodeRules(n.Rules.Rules); err != nil { // before the upload
		return backend.Sandbox{}, err
	}
	home, err := b.openHome()
	if err != nil {
		return backend.Sandbox{}, err
	}
	if n.CodebaseID != "" {
		return b.create(ctx, n, "", gitconfig.Of(b.getenv, "/"))
	}
	noted := &uploaded.Files{}
	pushed, err := b.push(ctx, backend.Push{Dir: string(n.Source.Path), Uploading: n.Uploading}, noted)
	if err != nil {
		return backend.Sandbox{}, err
	}
	n.CodebaseID = pushed.ID
	sb, err := b.create(ctx, n, config.SyncManual, gitconfig.Of(b.getenv, string(n.Source.Path)))
	if err != nil {
		return sb, errors.Join(err, b.deleteUpload(ctx, pushed.ID))
	}
	err = uploaded.Remember(home, sb.Record.ID, pushed.ID, n.Source, n.Rules.Rules, n.Rules.Marks, noted)
	if err == nil {
		err = b.rememberNames(sb, n.Env)
	}
	if err != nil {
		ctx = context.WithoutCancel(ctx)
		return sb, errors.Join(err, b.DestroyUnused(ctx, string(sb.Record.ID)), uploaded.Forget(home, sb.Record.ID), b.deleteUpload(ctx, pushed.ID))
	}
	return sb, nil
}

// rememberNames notes the names of variables of which the value stays here. A sandbox of
// which nothing was uploaded from here has no place for them.
func (b *Backend) rememberNames(sb backend.Sandbox, extra []string) error {
	if len(extra) == 0 {
		return nil
	}
	u, err := b.uploadOf(sb)
	if err != nil || u == nil {
		return err
	}
	return u.RememberNames(extra)
}

// Reopen finds a sandbox, and changes what flags say of its limits, scratch directories, secrets
// and published ports.
func (b *Backend) Reopen(ctx context.Context, name string, r backend.Reopening) (backend.Sandbox, error) {
	known, err := b.Sandbox(ctx, name)
	if err != nil {
		return known, err
	}
	served, n := known.Record.Served, r.New
	switch {
	case n.CodebaseID != "" && n.CodebaseID != served.CodebaseID:
		err = errdefs.New(errdefs.Precondition, "sandbox %s: made from codebase %s, not %s", name, served.CodebaseID, n.CodebaseID)
	case r.Dir != "":
		err = errdefs.New(errdefs.Precondition, "sandbox %s: exists already, with codebase %s; to upload files to it: agentfense codebase push %s --to %[2]s", name, served.CodebaseID, record.HostPath(r.Dir))
	case r.Given("runtime", "image", "user"):
		err = errdefs.New(errdefs.Precondition, "sandbox %s: exists already; the runtime and the user of a server's sandbox cannot be changed", name)
	case r.Given("net") && known.Record.Net != record.NetNone:
		err = errdefs.New(errdefs.Precondition, "sandbox %s: exists already; to let it reach fewer hosts: agentfense policy revoke %[1]s --net HOST", name)
	case r.Given("allow-net"), r.Given("net-allow"):
		err = errdefs.New(errdefs.Precondition, "sandbox %s: exists already; to let it reach more hosts: agentfense policy grant %[1]s --net HOST", name)
	case r.Given("ask-hook"):
		err = localOnly("ask-hook")
	case r.Given("mount"):
		err = errdefs.New(errdefs.Precondition, "sandbox %s: exists already; the mounts of a server's sandbox cannot be changed", name)
	case fixedFlag(r, known) != "":
		err = errdefs.New(errdefs.Precondition, "sandbox %s: exists already; --%s of a server's sandbox cannot be changed", name, fixedFlag(r, known))
	}
	if err != nil {
		return known, err
	}
	return b.update(ctx, known, r)
}

// fixedFlag returns the flag of a setting that a server's sandbox keeps, if r would change it.
func fixedFlag(r backend.Reopening, known backend.Sandbox) string {
	switch {
	case r.Given("git") && r.New.Git != known.Record.Git:
		return "git"
	case r.Given("home") && r.New.Home != known.Record.Home:
		return "home"
	case r.Given("board") && r.New.Board != known.Record.Board:
		return "board"
	}
	return ""
}

// Unshown is empty: what a codebase has, the server shows.
func (b *Backend) Unshown(context.Context, backend.Sandbox) ([]vpath.Path, error) { return nil, nil }

// LookAtGit finds nothing: the repository is the server's to read.
func (b *Backend) LookAtGit(context.Context, backend.Sandbox) (found gitview.Tracked, seen func() error, err error) {
	return found, func() error { return nil }, nil
}
