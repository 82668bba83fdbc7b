package service

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// GetStats returns what a running sandbox uses.
func (c *sandboxServer) GetStats(ctx context.Context, r *sandboxv1.GetStatsRequest) (*sandboxv1.Stats, error) {
	sb, err := c.service.sandboxFor(ctx, r)
	if err != nil {
		return nil, err
	}
	client, err := c.service.running(ctx, sb)
	if err != nil {
		return nil, err
	}
	used, err := client.Stats(ctx)
	if errdefs.Is(err, errdefs.NotFound) { // the supervisor has just ended
		return nil, notRunning(sb)
	}
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeStats(used), nil
}
