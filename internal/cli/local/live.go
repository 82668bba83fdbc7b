package local

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/secrets"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// enterTimeout bounds how long entering waits for another process that is
// just starting or ending the sandbox.
const enterTimeout = 20 * time.Second

// enterPause is how long entering waits before it looks again.
const enterPause = 10 * time.Millisecond

// localLive is a live sandbox that this process uses.
type localLive struct {
	b      *Backend
	sb     *record.Sandbox
	client *api.Client
	use    io.Closer // keeps it running for us
	began  bool      // we have started it
}

// Enter joins the running sandbox, or starts it for our time.
func (b *Backend) Enter(ctx context.Context, s backend.Sandbox, o backend.EnterOptions) (backend.Live, error) {
	sb, err := b.open(s.Ref())
	if err == nil {
		err = settleSource(ctx, sb, o.Rebase)
	}
	if err == nil {
		err = settleMounts(ctx, sb, o.Rebase)
	}
	if err == nil {
		err = apply.RecoverSources(sb, o.Recovered)
	}
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(enterTimeout)
	for {
		live, err := b.tryEnter(ctx, sb, o.Exclusive)
		// Unavailable: somebody else is starting, leaving or applying it.
		passing := errdefs.Is(err, errdefs.Unavailable)
		switch {
		case err == nil:
			return live.begin(ctx, o)
		case o.Exclusive || !passing || time.Now().After(deadline):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errdefs.New(errdefs.Canceled, "sandbox %s: %w", sb.Name(), ctx.Err())
		case <-time.After(enterPause):
		}
	}
}

// begin gives a sandbox that was entered what only the caller has.
func (l *localLive) begin(ctx context.Context, o backend.EnterOptions) (backend.Live, error) {
	warn := o.Warn
	if warn == nil {
		warn = func(error) {}
	}
	if o.Learn {
		if err := l.client.Learn(ctx); err != nil {
			return nil, errors.Join(err, l.Leave())
		}
	}
	rec := l.sb.Record()
	if err := l.b.secrets.Give(ctx, l.client, &rec, warn); err != nil {
		return nil, errors.Join(err, l.Leave())
	}
	if o.Checkpoint != nil {
		if err := l.checkpoint(ctx, o.Checkpoint); err != nil {
			return nil, errors.Join(err, l.Leave())
		}
	}
	if l.began && o.Started != nil {
		o.Started(backend.Sandbox{Record: rec})
	}
	return l, nil
}

func (b *Backend) tryEnter(ctx context.Context, sb *record.Sandbox, exclusive bool) (*localLive, error) {
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
		return &localLive{b: b, sb: sb, client: client, use: stay}, nil
	}
	if !errdefs.Is(err, errdefs.NotFound) {
		return nil, err
	}
	lease, err := launch.Start(ctx, b.home.Dir(), sb.Name())
	if err != nil {
		return nil, err
	}
	client, err = api.Dial(ctx, sb.Dir())
	if err != nil {
		lease.Release()
		return nil, err
	}
	return &localLive{b: b, sb: sb, client: client, use: leaseCloser{lease, &b.ending}, began: true}, nil
}

// leaseCloser is the use of a sandbox that we have started. If nobody else uses it, it
// has ended when Close returns, but for its process: Backend.Close waits for that.
type leaseCloser struct {
	*launch.Lease
	ending *sync.WaitGroup
}

// Close gives the sandbox up.
func (l leaseCloser) Close() error {
	err := l.Release()
	l.ending.Go(l.Wait)
	return err
}

// Used returns what was used.
func (l *localLive) Used(ctx context.Context) ([]api.Used, error) { return l.client.Used(ctx) }

// GiveSecrets hands the values of secrets over that may have changed. Those that cannot be found
// stay as they are.
func (l *localLive) GiveSecrets(ctx context.Context) error {
	rec := l.sb.Record()
	return l.b.secrets.Give(ctx, l.client, &rec, func(error) {})
}

// Leave gives the sandbox up.
func (l *localLive) Leave() error { return l.use.Close() }

// Detach starts a command and keeps the sandbox running until it is stopped.
func (l *localLive) Detach(ctx context.Context, c backend.Command, _ io.Writer) (backend.Exit, error) {
	command, err := l.command(c)
	if err != nil {
		return backend.Exit{}, err
	}
	if len(c.Argv) > 0 {
		command.Detached = true
		running, err := l.client.Exec(ctx, command)
		if err != nil {
			return backend.Exit{}, notStarted(err)
		}
		if err := running.Detach(); err != nil {
			return backend.Exit{}, err
		}
	}
	return backend.Exit{}, l.client.Pin(ctx) // last: what never ran leaves nothing running
}

// command builds what runs inside. Variables that the sandbox remembers come first, so
// that the command's own win.
func (l *localLive) command(c backend.Command) (api.Command, error) {
	if c.Remember && len(c.Env) > 0 {
		if err := l.sb.RememberVariables(c.Env); err != nil {
			return api.Command{}, err
		}
	}
	remembered, err := l.sb.Variables()
	if err != nil {
		return api.Command{}, err
	}
	r := l.sb.Record()
	user := supervise.UserOf(&r)
	addresses, placeholders, err := secrets.Variables(&r)
	if err != nil {
		return api.Command{}, err
	}
	v := supervise.Environment{
		Sandbox: r.Name, Home: user.Home, User: user.Name, Reachable: supervise.Reachable(&r),
		Extra: slices.Concat(addresses, remembered, c.Env, placeholders),
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = time.Duration(r.Limits.Timeout)
	}
	return api.Command{
		Argv: c.Argv, Env: v.Build(l.b.getenv), Dir: c.Dir(r), Timeout: timeout,
		TTY: c.Rows > 0, Rows: c.Rows, Columns: c.Columns,
	}, nil
}

// notStarted marks the error of a command that could not be started.
func notStarted(err error) error {
	if _, is := errors.AsType[*api.CommandError](err); is {
		return backend.NotStarted(err)
	}
	return err
}
