package local

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
)

// Logs calls do with what the detached commands of a sandbox wrote.
func (b *Backend) Logs(ctx context.Context, name string, follow bool, do func(outlog.Record) error) error {
	sb, err := b.open(name)
	if err != nil {
		return err
	}
	if !follow {
		return outlog.Read(ctx, sb.Dir(), nil, do)
	}
	return outlog.Read(ctx, sb.Dir(), sb.HasSupervisor, do)
}

// Audit calls do with each audit record of a sandbox behind the number after. It takes
// the id of a removed sandbox too.
func (b *Backend) Audit(ctx context.Context, name string, after uint64, follow bool, do func(audit.Record) error) error {
	path, err := b.home.FindLog(name)
	if err != nil {
		return err
	}
	behind := func(r audit.Record) error {
		if after > 0 && r.Seq <= after {
			return nil
		}
		return do(r)
	}
	if follow {
		return audit.Follow(ctx, path, behind)
	}
	return audit.Read(path, behind)
}

// VerifyAudit checks a log, as Audit finds it.
func (b *Backend) VerifyAudit(_ context.Context, name string, known []audit.Head) (audit.Summary, error) {
	path, err := b.home.FindLog(name)
	if err != nil {
		return audit.Summary{}, err
	}
	return audit.Verify(path, known...)
}

// ArchiveAudit moves the records of a sandbox's log into a new file.
func (b *Backend) ArchiveAudit(_ context.Context, name, file string) (err error) {
	sb, err := b.open(name)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errdefs.New(errdefs.Precondition, "--archive %s: %w", vpath.Quote(file), errors.Unwrap(err))
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return sb.ArchiveLog(out)
}

// PruneAudit deletes the logs of sandboxes that were removed longer ago than age.
func (b *Backend) PruneAudit(_ context.Context, age time.Duration) (int, error) {
	return b.home.PruneLogs(age)
}
