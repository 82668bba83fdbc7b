package remote

import (
	"context"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
)

// Backend does what the verbs ask for with the sandboxes of a server. What this host
// has to remember of them, such as the directory that was uploaded, is in the state
// directory.
type Backend struct {
	*Client
	openHome func() (*record.Home, error)
	getenv   func(string) string
}

var _ backend.Server = (*Backend)(nil)

// New is the sandboxes of the server that c reaches. openHome opens the state directory
// of this host, getenv looks up a variable of the caller.
func New(c *Client, openHome func() (*record.Home, error), getenv func(string) string) *Backend {
	return &Backend{c, openHome, getenv}
}

// uploadOf returns what is remembered of the directory that was uploaded for a
// sandbox, nil if nothing is, and of a mount.
func (b *Backend) uploadOf(sb backend.Sandbox) (*uploaded.Directory, error) {
	if sb.Mount != "" {
		return nil, nil
	}
	home, err := b.openHome()
	if err != nil {
		return nil, err
	}
	u, err := uploaded.Open(home, sb.Record.ID)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil
	}
	return u, err
}

// Inspect tells what a sandbox is, without the paths of the server's host. It has the
// names of the variables that this host passes on, too.
func (b *Backend) Inspect(ctx context.Context, name string) (backend.Inspection, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return backend.Inspection{}, err
	}
	u, err := b.uploadOf(sb)
	if err == nil && u != nil {
		var names []string
		names, err = u.Names()
		for _, name := range names {
			sb.Variables = append(sb.Variables, record.HostPath(name))
		}
		slices.Sort(sb.Variables)
		sb.Variables = slices.Compact(sb.Variables)
	}
	return backend.Inspection{Sandbox: sb}, err
}

// Logs calls do with what the detached commands of a sandbox wrote.
func (b *Backend) Logs(ctx context.Context, name string, follow bool, do func(outlog.Record) error) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	return b.Client.Logs(ctx, string(sb.Record.ID), follow, do)
}

// Audit calls do with each audit record of a sandbox behind the number after.
func (b *Backend) Audit(ctx context.Context, name string, after uint64, follow bool, do func(audit.Record) error) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	return b.Client.Audit(ctx, string(sb.Record.ID), after, follow, do)
}

// VerifyAudit is the server's own task, whose log it is.
func (b *Backend) VerifyAudit(context.Context, string, []audit.Head) (audit.Summary, error) {
	return audit.Summary{}, localOnly("verify")
}

// ArchiveAudit is the server's own task.
func (b *Backend) ArchiveAudit(context.Context, string, string) error { return localOnly("archive") }

// PruneAudit is the server's own task.
func (b *Backend) PruneAudit(context.Context, time.Duration) (int, error) {
	return 0, localOnly("prune")
}

// localOnly refuses a flag.
func localOnly(flag string) error { return &backend.LocalOnlyError{Flag: flag} }

// BringBack brings changes into the directory that was uploaded for a sandbox.
func (b *Backend) BringBack(ctx context.Context, name string, u *uploaded.Directory, paths []vpath.Path, dryRun bool, take backend.Reviewed) (apply.Result, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return apply.Result{}, err
	}
	return BringBack(ctx, b.Client, u, sb, paths, dryRun, take, nil)
}
