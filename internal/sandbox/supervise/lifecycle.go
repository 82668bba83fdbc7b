package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// StopPatience is how long a supervisor may take to end before it is killed:
// ten times what letting go of a million files takes.
const StopPatience = 30 * time.Second

// Launch starts the sandbox called name, whose state lives below home, and lets
// it run until it is stopped. Errors: as Start.
func Launch(ctx context.Context, home *record.Home, name string) (*api.Client, error) {
	lease, err := launch.Start(ctx, home.Dir(), name)
	if err != nil {
		return nil, err
	}
	failpoint.At("start: ready")
	sb, err := home.Open(name)
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	c, err := api.Dial(ctx, sb.Dir())
	if err == nil {
		err = c.Pin(ctx)
	}
	failpoint.At("start: kept")
	if err == nil {
		err = noteServed(sb, func(s *record.Served) {
			s.Running, s.StartedAt, s.StoppedAt, s.Failure = true, time.Now().UTC(), time.Time{}, ""
		})
	}
	if err := errors.Join(err, lease.Release()); err != nil {
		return nil, err
	}
	return c, nil
}

// noteServed changes what the record of a server's sandbox says; that of
// another stays as it is.
func noteServed(sb *record.Sandbox, change func(*record.Served)) error {
	if sb.Record().Served == nil {
		return nil
	}
	return sb.Update(func(r *record.Record) error {
		change(r.Served)
		return nil
	})
}

// End ends everything that runs in sb, if anything does, and returns when its
// supervisor has let go. One that does not listen is killed after patience, or
// as soon as it is known not to answer;
// then killed is true, and the delta is whole all the same. Errors: those of
// launch.Cleanup, too, of a sandbox that has ended.
func End(ctx context.Context, sb *record.Sandbox, patience time.Duration) (killed bool, err error) {
	clean, killed, err := end(ctx, sb, patience)
	if err != nil {
		return killed, err
	}
	rec := sb.Record()
	if s := rec.Served; s != nil && s.Running {
		err = noteServed(sb, func(s *record.Served) { s.Running, s.StoppedAt = false, time.Now().UTC() })
	}
	if clean && rec.Runtime != record.RuntimeDocker {
		return killed, err
	}
	// A docker daemon that was gone has not removed what the supervisor left.
	return killed, errors.Join(err, launch.Cleanup(sb))
}

// end says that the supervisor ended by itself, clean, or was killed.
func end(ctx context.Context, sb *record.Sandbox, patience time.Duration) (clean, killed bool, err error) {
	c, err := DialSettled(ctx, sb, patience)
	switch {
	case errdefs.Is(err, errdefs.NotFound):
		return false, false, nil
	case err != nil:
		return false, false, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = c.Stop(bounded)
	if !api.IsSilent(err) && (err == nil || bounded.Err() == nil || ctx.Err() != nil) {
		return true, false, err
	}
	if err := c.Kill(ctx); err != nil && !errdefs.Is(err, errdefs.NotFound) {
		return false, false, err
	}
	return false, true, nil
}

// settleInterval is how often a supervisor is looked at that comes or goes.
const settleInterval = 20 * time.Millisecond

// DialSettled is api.Dial that waits, for patience, while a supervisor has the
// sandbox and does not listen: it is still starting, or letting go.
func DialSettled(ctx context.Context, sb *record.Sandbox, patience time.Duration) (*api.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c, err := api.Dial(ctx, sb.Dir())
		if !errdefs.Is(err, errdefs.NotFound) {
			return c, err
		}
		if owner, held, holderErr := sb.Holder(); holderErr != nil || !held || owner.Purpose != record.PurposeSupervise {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(settleInterval):
		}
	}
}

// NoteFailure keeps in the record of a server's sandbox why it did not start.
func NoteFailure(sb *record.Sandbox, why error) error {
	return noteServed(sb, func(s *record.Served) { s.Running, s.Failure = false, why.Error() })
}
