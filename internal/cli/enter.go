package cli

import (
	"context"
	"io"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// enterTimeout bounds how long entering waits for another process that is
// just starting or ending the sandbox.
const enterTimeout = 20 * time.Second

// enterPause is how long entering waits before it looks again.
const enterPause = 10 * time.Millisecond

// entered is a live sandbox that this process uses.
type entered struct {
	client *api.Client
	lease  *launch.Lease // nil if another process started it
	stay   io.Closer     // keeps it for us if another process started it
	joined bool          // it ran before we came
}

// enter joins the running sandbox, or starts it for our time.
func (e *env) enter(ctx context.Context, home *record.Home, sb *record.Sandbox, exclusive bool) (*entered, error) {
	deadline := time.Now().Add(enterTimeout)
	for {
		live, err := tryEnter(ctx, home, sb, exclusive)
		// Unavailable: somebody else is starting, leaving or applying it.
		passing := errdefs.Is(err, errdefs.Unavailable)
		if err == nil || exclusive || !passing || time.Now().After(deadline) {
			return live, err
		}
		select {
		case <-ctx.Done():
			return nil, errdefs.New(errdefs.Canceled, "sandbox %s: %w", sb.Name(), ctx.Err())
		case <-time.After(enterPause):
		}
	}
}

func tryEnter(ctx context.Context, home *record.Home, sb *record.Sandbox, exclusive bool) (*entered, error) {
	client, err := api.Dial(ctx, sb.Dir())
	if err == nil {
		if exclusive {
			return nil, errdefs.New(errdefs.Precondition, "sandbox %s: running already, and --exclusive was given", sb.Name())
		}
		stay, err := client.Join(ctx)
		if errdefs.Is(err, errdefs.NotFound) {
			return nil, errdefs.New(errdefs.Unavailable, "sandbox %s: ended meanwhile: %w", sb.Name(), err)
		}
		if err != nil {
			return nil, err
		}
		return &entered{client: client, stay: stay, joined: true}, nil
	}
	if !errdefs.Is(err, errdefs.NotFound) {
		return nil, err
	}
	lease, err := launch.Start(ctx, home.Dir(), sb.Name())
	if err != nil {
		return nil, err
	}
	client, err = api.Dial(ctx, sb.Dir())
	if err != nil {
		lease.Release()
		return nil, err
	}
	return &entered{client: client, lease: lease}, nil
}

// leave gives the sandbox up. If we started it and nobody else uses it, it has
// ended with everything it owned when leave returns.
func (l *entered) leave() error {
	if l.lease == nil {
		return l.stay.Close()
	}
	return l.lease.Release()
}
