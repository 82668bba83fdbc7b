package service

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/fault"
)

// GetStats says what a running sandbox uses.
func (c *sandboxServer) GetStats(ctx context.Context, r *sandboxv1.GetStatsRequest) (*sandboxv1.Stats, error) {
	sb, err := c.service.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	client, err := c.service.running(ctx, sb)
	if err != nil {
		return nil, err
	}
	used, err := client.Stats(ctx)
	if fault.Is(err, fault.NotFound) { // the supervisor has ended in this moment
		return nil, notRunning(sb)
	}
	if err != nil {
		return nil, err
	}
	return &sandboxv1.Stats{
		MemoryBytes: counted(used.MemoryBytes), MemoryPeakBytes: counted(used.MemoryPeakBytes),
		CpuTime: durationpb.New(used.CPU), Pids: counted(used.PIDs),
		DeltaBytes: used.DeltaBytes, DeltaInodes: used.DeltaInodes,
		Execs: int32(used.Execs), Sessions: int32(used.Sessions),
		OomKills: used.OOMKills, PidsMaxHits: used.PIDsMaxHits, ViewRequests: used.ViewRequests,
	}, nil
}

// counted is absent for what nothing counts.
func counted(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
