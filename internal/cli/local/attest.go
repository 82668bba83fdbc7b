package local

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
)

// attested returns what an attested apply takes, before it takes it. Errors: those of
// attest.Choose.
func (c *localChanges) attested(ctx context.Context, o *apply.Options) (shown manifest.Manifest, err error) {
	live, err := client(ctx, c.sb)
	if err != nil {
		return nil, err
	}
	o.Reviewed, shown, err = attest.Choose(c.sb, o.Reviewed, live != nil)
	return shown, err
}

// attest makes a statement about an apply, if something was applied.
func (c *localChanges) attest(shown manifest.Manifest, result *backend.Applied, reviewed string) (err error) {
	result.Statement, err = attest.Make(c.sb, shown, &result.Result, about(reviewed))
	return err
}

// about is what a statement made now says of its making.
func about(reviewed string) attest.About {
	return attest.About{Version: executable.Version(), Time: time.Now(), Reviewed: reviewed}
}
