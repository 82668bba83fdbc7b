package local

import (
	"context"
	"slices"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/keep"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// KeepVerb is the hidden verb that is Keep, run where files that are closed to their owner are
// open to us.
const KeepVerb = "__keep"

// Keep applies what rules with apply: keep match, in the workspace and in each mount, unless a
// command runs.
func (b *Backend) Keep(ctx context.Context, name string) ([]backend.Kept, error) {
	sb, err := b.open(name)
	if err != nil {
		return nil, err
	}
	parts := slices.DeleteFunc(sb.Parts(), func(part *record.Sandbox) bool { return !policy.Keeps(part.Stored.Rules) })
	if len(parts) == 0 {
		return nil, nil
	}
	var status api.Status
	err = ifRunning(ctx, sb, func(live *api.Client) (err error) { status, err = live.Status(ctx); return err })
	if status.Execs > 0 {
		return []backend.Kept{{Busy: true}}, nil
	}
	if err == nil {
		err = b.asOwner(ctx, sb, []string{KeepVerb, sb.Name()})
	}
	if err != nil {
		return nil, err
	}
	var list []backend.Kept
	for _, part := range parts {
		drop, err := api.DropLive(ctx, part.Dir(), part.Mount())
		if err != nil {
			return list, err
		}
		kept, err := keep.Keep(ctx, part, drop)
		list = append(list, backend.Kept{Mount: part.Mount(), Result: kept})
		if err != nil {
			return list, err
		}
	}
	return list, nil
}
