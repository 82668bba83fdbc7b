package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/crash"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
)

// StopPatience is how long a supervisor may take to end before it is killed:
// ten times what letting go of a million files takes.
const StopPatience = 30 * time.Second

// Launch starts the sandbox called name, whose state lives below home, and lets
// it run until it is stopped. Errors: as Start.
func Launch(ctx context.Context, home *sandbox.Home, name string) (*Client, error) {
	lease, err := Start(ctx, home.Dir(), name)
	if err != nil {
		return nil, err
	}
	crash.At("start: ready")
	sb, err := home.Open(name)
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	c, err := Dial(ctx, sb.Dir())
	if err == nil {
		err = c.Keep(ctx)
	}
	crash.At("start: kept")
	if err == nil {
		err = noteServed(sb, func(s *sandbox.Served) {
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
func noteServed(sb *sandbox.Sandbox, change func(*sandbox.Served)) error {
	if sb.Record().Served == nil {
		return nil
	}
	return sb.Update(func(r *sandbox.Record) error {
		change(r.Served)
		return nil
	})
}

// End ends everything that runs in sb, if anything does, and returns when its
// supervisor has let go. One that does not listen is killed after patience;
// then killed is true, and the delta is whole all the same.
func End(ctx context.Context, sb *sandbox.Sandbox, patience time.Duration) (killed bool, err error) {
	if killed, err = end(ctx, sb, patience); err != nil {
		return killed, err
	}
	if s := sb.Record().Served; s == nil || !s.Running {
		return killed, nil
	}
	return killed, noteServed(sb, func(s *sandbox.Served) { s.Running, s.StoppedAt = false, time.Now().UTC() })
}

func end(ctx context.Context, sb *sandbox.Sandbox, patience time.Duration) (killed bool, err error) {
	c, err := Dial(ctx, sb.Dir())
	switch {
	case fault.Is(err, fault.NotFound):
		return false, ClearRemains(sb)
	case err != nil:
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = c.Stop(bounded)
	if err == nil || bounded.Err() == nil || ctx.Err() != nil {
		return false, err
	}
	if err := c.Kill(ctx); err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	return true, ClearRemains(sb)
}

// NoteFailure keeps in the record of a server's sandbox why it did not start.
func NoteFailure(sb *sandbox.Sandbox, why error) error {
	return noteServed(sb, func(s *sandbox.Served) { s.Running, s.Failure = false, why.Error() })
}
