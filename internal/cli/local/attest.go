package local

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
)

// attested returns what an attested apply takes, before it takes it: a state that was shown, or
// that of a sandbox in which nothing runs. Errors: Precondition, also if the audit log is damaged.
func (c *localChanges) attested(ctx context.Context, o *apply.Options) (manifest.Manifest, error) {
	if o.Reviewed == "" {
		live, err := client(ctx, c.sb)
		if err != nil {
			return nil, err
		}
		if live != nil {
			return nil, errdefs.New(errdefs.Precondition, "sandbox %s runs: to attest its changes, look at them first: agentfense diff %[1]s", c.sb.Ref())
		}
		if o.Reviewed, err = manifest.StoreNow(c.sb); err != nil {
			return nil, err
		}
	}
	if _, err := audit.Verify(c.sb.AuditPath()); err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "nothing was applied: %w", err)
	}
	return manifest.Load(c.sb, o.Reviewed)
}

// attest makes a statement about an apply, if something was applied.
func (c *localChanges) attest(shown manifest.Manifest, result *backend.Applied, reviewed string) error {
	if result.Count(apply.Applied) == 0 {
		return nil
	}
	log, err := audit.Verify(c.sb.AuditPath())
	if err != nil {
		return err
	}
	st, err := attest.New(c.sb, shown, &result.Result, &log, attest.About{Version: executable.Version(), Time: time.Now(), Reviewed: reviewed})
	if err != nil {
		return err
	}
	result.Statement, err = st.Encode()
	return err
}
