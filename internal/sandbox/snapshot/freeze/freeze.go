// Package freeze freezes the deltas of a sandbox, whether it is running or not.
//
// The supervisor of a running sandbox does it. The delta of a stopped one is frozen under the lock
// of the sandbox.
package freeze

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// patience is how long a freeze waits for another process that is starting, ending or applying the
// sandbox, and pause how long it waits before it looks again.
const (
	patience = 20 * time.Second
	pause    = 10 * time.Millisecond
)

// Of returns the Freezing of a sandbox. Its errors: *record.HeldError if another process has the
// sandbox for longer than 20 seconds.
func Of(ctx context.Context, sb *record.Sandbox) snapshot.Freezing {
	return func() (map[string]string, error) {
		deadline := time.Now().Add(patience)
		for {
			layers, err := once(ctx, sb)
			_, held := errors.AsType[*record.HeldError](err)
			if held && time.Now().Before(deadline) && ctx.Err() == nil {
				time.Sleep(pause)
				continue
			}
			return layers, err
		}
	}
}

func once(ctx context.Context, sb *record.Sandbox) (map[string]string, error) {
	layers, err := api.At(sb.Dir()).Freeze(ctx)
	if !errdefs.Is(err, errdefs.NotFound) {
		return layers, err
	} // it does not run
	lock, err := sb.TryLock(record.PurposeSnapshot)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	return snapshot.FreezeStopped(sb)()
}
