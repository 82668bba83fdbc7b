package remote

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// leaveTimeout bounds the end of a sandbox that we have started.
const leaveTimeout = time.Minute

// serverLive is a server's sandbox that runs.
type serverLive struct {
	b         *Backend
	sb        backend.Sandbox
	ctx       context.Context //nolint:containedctx // its values, for the call that leaves
	isStarted bool            // by us, to be stopped by us
	isLost    bool            // the server failed, and says no more
	// checkpoint says that the next command is to be run with a snapshot before it.
	checkpoint bool
}

// Enter starts a sandbox that does not run.
func (b *Backend) Enter(ctx context.Context, sb backend.Sandbox, o backend.EnterOptions) (backend.Live, error) {
	if o.Rebase {
		return nil, localOnly("rebase")
	}
	if o.Learn {
		return nil, localOnly("learn")
	}
	l := &serverLive{b: b, sb: sb, ctx: context.WithoutCancel(ctx), checkpoint: o.Checkpoint != nil}
	if sb.Status != record.Running {
		err := b.Start(ctx, sb.Ref())
		if err == nil {
			l.isStarted = true
			if o.Started != nil {
				o.Started(sb)
			}
			return l, nil
		}
		if now, findErr := b.Sandbox(ctx, sb.Ref()); findErr != nil || now.Status != record.Running {
			return nil, err
		} // else somebody else was quicker
	}
	if o.Exclusive {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: running already, and --exclusive was given", sb.Record.Name)
	}
	return l, nil
}

// Used fails: Enter has refused to record.
func (l *serverLive) Used(context.Context) ([]api.Used, error) { return nil, localOnly("learn") }

// GiveSecrets fails: a server has its own secrets.
func (l *serverLive) GiveSecrets(context.Context) error { return localOnly("secret") }

// Leave stops what we have started if nobody else uses it.
func (l *serverLive) Leave() error {
	if !l.isStarted || l.isLost {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, leaveTimeout)
	defer cancel()
	used, err := l.b.InUse(ctx, l.sb.Ref())
	if err == nil && !used {
		err = l.b.Client.Stop(ctx, l.sb.Ref())
	}
	if errdefs.Is(err, errdefs.Precondition) || errdefs.Is(err, errdefs.NotFound) {
		return nil // somebody else has stopped or removed it
	}
	return err
}

// call builds the call for a command. Of our environment it gets what run gives a
// command of this host. It starts where it would there, if the sandbox is of a directory
// that was uploaded. What the server remembers for the sandbox it adds itself.
func (l *serverLive) call(c backend.Command) (Call, error) {
	u, err := l.b.uploadOf(l.sb)
	if err != nil {
		return Call{}, err
	}
	call := Call{
		SandboxID: l.sb.Ref(), Argv: c.Argv, Dir: c.WorkDir, Timeout: c.Timeout, Rows: c.Rows, Columns: c.Columns,
		Checkpoint: l.checkpoint,
	}
	l.checkpoint = false
	var names []string
	if u != nil { // else nothing is known
		if c.Remember && len(c.Env) > 0 {
			if err := u.RememberNames(c.Env); err != nil {
				return Call{}, err
			}
		}
		if names, err = u.Names(); err != nil {
			return Call{}, err
		}
		if call.Dir == "" {
			call.Dir = c.Dir(u.Record())
		}
	}
	call.Env = supervise.PassedOn(append(slices.Clone(names), c.Env...), l.b.getenv)
	if c.Remember {
		call.Remember = given(c.Env)
	}
	return call, nil
}

// given are the variables of which the value is given, which a server keeps.
func given(extra []string) map[string]string {
	vars := map[string]string{}
	for _, v := range extra {
		if name, value, is := strings.Cut(v, "="); is {
			vars[name] = value
		}
	}
	return vars
}

// Attach runs a command.
func (l *serverLive) Attach(ctx context.Context, c backend.Command) (backend.Attached, error) {
	call, err := l.call(c)
	if err != nil {
		return nil, err
	}
	a, err := l.b.Client.Attach(ctx, call)
	if err != nil {
		return nil, l.lost(err)
	}
	return &serverAttached{a, l, c.Argv, ctx}, nil
}

// lost notes an error, behind which the server has nothing to add.
func (l *serverLive) lost(err error) error {
	l.isLost = l.isLost || errdefs.Is(err, errdefs.Unavailable)
	return err
}

// Detach starts a command that goes on without us.
func (l *serverLive) Detach(ctx context.Context, c backend.Command, stderr io.Writer) (exit backend.Exit, err error) {
	call, err := l.call(c)
	if err == nil && len(c.Argv) > 0 {
		exit, err = l.b.Client.Detach(ctx, call, stderr)
	}
	if err == nil && exit.Code == 0 {
		l.isStarted = false // it stays
	}
	return exit, l.lost(err)
}

// serverAttached is an attached command that also tells why it was killed.
type serverAttached struct {
	backend.Attached
	live *serverLive
	argv []string
	ctx  context.Context //nolint:containedctx // of the command
}

// Wait copies the output until the command has ended.
func (a *serverAttached) Wait(stdout, stderr io.Writer) (backend.Exit, error) {
	exit, err := a.Attached.Wait(stdout, stderr)
	if err != nil || exit.Code != api.ExitOutOfMemory {
		return exit, a.live.lost(err)
	}
	isOut := false
	err = a.live.b.Client.Audit(a.ctx, a.live.sb.Ref(), 0, false, func(r audit.Record) error {
		if v, ok := r.Event.(audit.CommandExecuted); ok && slices.EqualFunc(v.Argv, a.argv, func(a audit.Text, b string) bool { return string(a) == b }) {
			isOut = v.OOMKilled // of the last such command
		}
		return nil
	})
	if isOut {
		exit.Reason = api.ReasonOutOfMemory
	}
	return exit, a.live.lost(err)
}
