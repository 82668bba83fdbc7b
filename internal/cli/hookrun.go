package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func newHookRun(e *env) *cobra.Command {
	var o hookOptions
	cmd := &cobra.Command{
		Use:         "run [flags] -- COMMAND",
		Short:       "Run a shell command for an agent, and apply what it changed",
		Hidden:      true, // hook claude and hook codex write it
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{annotationInside: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.hereOnly("hook"); err != nil {
				return err
			}
			return e.onHost(cmd, func(ctx context.Context, b backend.Backend) error { return o.run(ctx, e, cmd, b, args[0]) })
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.register(cmd)
	return cmd
}

// run runs a shell command in the sandbox of the project.
func (o *hookOptions) run(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, command string) error {
	home, err := e.openHome()
	if err != nil {
		return err
	}
	source, err := o.settle(home)
	if err != nil {
		return err
	}
	if !isBelow(string(source.Path)) {
		return errdefs.New(errdefs.Precondition, "the command was not run: its directory %s is outside of the project %s", record.HostPath(currentDir()), source.Path)
	}
	env, err := o.addToolchains(ctx, e, cmd, b, o.commandEnv)
	if err != nil {
		return err
	}
	sb, _, err := o.openOrCreate(ctx, e, cmd, b, env)
	if err != nil {
		return err
	}
	live, err := b.Enter(ctx, sb, backend.EnterOptions{Warn: e.warnOf, Recovered: e.sayRecovered})
	if err != nil {
		return err
	}
	c := backend.Command{Argv: backend.ShellCommand(command), Env: o.commandEnv, Here: currentDir(), Timeout: o.Timeout}
	exit, err := e.execute(ctx, b, live, sb, c)
	err = errors.Join(err, live.Leave())
	if _, never := errors.AsType[*backend.NotStartedError](err); never {
		return err
	}
	e.explainExit(exit)
	e.keep(ctx, b, sb.Ref())
	err = errors.Join(err, e.applyForAgent(context.WithoutCancel(ctx), b, home, sb, exit.Touched))
	if err == nil && exit.Code != exitOK {
		return exitError(exit.Code)
	}
	return err
}

// applyForAgent applies what waits in the sandbox after a command, and says what of the touched
// paths stays there.
func (e *env) applyForAgent(ctx context.Context, b backend.Backend, home *record.Home, sb backend.Sandbox, touched []vpath.Path) error {
	name := sb.Record.Name
	unlock, err := lockForApply(ctx, home, name)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := b.Changes(ctx, name, "", []string{hookApplyVerb, name})
	if err != nil {
		return doneElsewhere(err)
	}
	return e.applyUnreviewed(ctx, c, touched)
}

// hookApplyVerb is the hidden verb of applyForAgent where files are closed to their owner.
const hookApplyVerb = "__hookapply"

func newHookApply(e *env) *cobra.Command {
	return &cobra.Command{
		Use:         hookApplyVerb + " NAME",
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{annotationInside: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.onHost(cmd, func(ctx context.Context, b backend.Backend) error {
				c, err := b.Changes(ctx, args[0], "", nil)
				if err != nil {
					return err
				}
				return e.applyUnreviewed(ctx, c, nil)
			})
		},
	}
}

func (e *env) applyUnreviewed(ctx context.Context, c backend.Changes, touched []vpath.Path) error {
	result, err := c.Apply(ctx, backend.ApplyOptions{Take: backend.TakeNow, Unreviewed: true})
	said := 0
	for _, p := range result.Listed() {
		why := p.Reason
		switch p.Outcome {
		case apply.Applied, apply.Present, apply.Kept, apply.LeftOut:
			continue
		case apply.Conflict:
			why = "changed outside, too: " + why
		}
		if len(touched) > 0 && !slices.Contains(touched, p.Path) {
			continue // it was told when it was changed
		}
		if said++; said <= summaryLines {
			e.say("not in the project yet: %s: %s", shown(p.Path), vpath.EscapeMessage(why))
		}
	}
	if said > summaryLines {
		e.say("… and %d more", said-summaryLines)
	}
	if said > 0 {
		e.say("the sandbox %[1]s has them; the user can review them: agentfense diff %[1]s · agentfense apply %[1]s", c.Sandbox().Record.Name)
	}
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "apply: %w", err)
	}
	return nil
}

// hookLock is a file in a sandbox's directory.
const hookLock = "hook-apply.lock"

// applyPatience is how long a command waits for the apply of another one.
const applyPatience = 5 * time.Minute

// lockForApply waits until no other command of the agent applies.
func lockForApply(ctx context.Context, home *record.Home, name string) (unlock func(), err error) {
	sb, err := home.Open(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(sb.Dir(), hookLock), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, record.HostError("sandbox "+name, err)
	}
	deadline := time.Now().Add(applyPatience)
	for {
		err := record.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) || ctx.Err() != nil:
			f.Close()
			return nil, record.HostError("sandbox "+name, err)
		}
		time.Sleep(enterPause)
	}
}

// enterPause is how long a wait takes to look again.
const enterPause = 10 * time.Millisecond
