package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

type runOptions struct {
	sandboxOptions
	commandOptions
	Apply     bool
	Remove    bool
	Detach    bool
	Exclusive bool
}

// commandOptions are the flags of one command: those of run, exec and shell.
type commandOptions struct {
	Env     []string
	WorkDir string
}

func (o *commandOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.Env, "env", nil, "set the variable `NAME[=VALUE]` inside; without a value, to the caller's value")
	cmd.Flags().StringVar(&o.WorkDir, "workdir", "", "directory inside to start in (default: the current one if it is inside, else the workspace)")
}

func newRun(e *env) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] [NAME --] COMMAND [ARG…]",
		Short: "Run a command in a sandbox of a directory",
		Long: `Run a command that sees the directory as the policy says, and whose changes go
to a delta. The sandbox and its delta stay afterwards, under --name or a
generated name, to be reviewed (diff), applied, discarded or resumed by another
run; without --name it stays only if something was changed. Running a name that
runs already joins it.

One word before -- is the name too, as for exec: run fix -- make test. To run a
command whose first argument is --, put a -- before it.

The variables of --env are remembered for the commands that follow in the sandbox.
NAME=VALUE is stored in the state directory, readable by you alone; of NAME the
name alone is stored, and each command takes the value of its own caller: give
secrets that way.

With --endpoint the directory is uploaded, or --codebase names an existing codebase.

The exit code is the command's; 124 after --timeout, 125 if the sandbox could
not be set up, 126 and 127 if the command could not be started, 128+N after
signal N, 137 out of memory.`,
		Example: `  agentfense run -- make test
  agentfense run --preset development --hide '*.sqlite' --name fix -- sh
  agentfense run --net host --env API_KEY --mount ~/.local/bin --name fix -- your-agent
  agentfense run --name fix --memory 2G --timeout 10m -- npm test
  agentfense run --rm --preset read-only -- grep -r TODO .
  agentfense run --endpoint https://build:9000 --name fix -- make test`,
		Annotations: map[string]string{annotationInside: "true"},
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args = o.takeName(cmd, args)
		if len(args) == 0 && !o.Detach {
			return usageError{errdefs.New(errdefs.Invalid, "run: no command given (see `agentfense run --help`)")}
		}
		if err := checkVariables(o.Env); err != nil {
			return err
		}
		return e.dispatch(cmd,
			func() error { return runRun(cmd.Context(), e, cmd, o, args) },
			func(ctx context.Context, s backend.Server) error { return e.runOnServer(ctx, s, cmd, o, args) },
			append([]string{"name", "env", "workdir", "timeout", "apply", "rm", "detach", "exclusive"}, serverFlags...)...)
	}
	o.sandboxOptions.register(cmd)
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.Name, "name", "", "name of the sandbox, new or known (default: a generated one)")
	o.commandOptions.register(cmd)
	rebaseFlag(cmd, &o.Rebase)
	f.BoolVar(&o.Apply, "apply", false, "apply the changes if the command succeeds")
	f.BoolVar(&o.Remove, "rm", false, "remove the sandbox and its delta afterwards; with --apply only if everything was applied")
	f.BoolVar(&o.Detach, "detach", false, "leave it running until it is stopped (agentfense stop); agentfense logs shows the output")
	f.BoolVar(&o.Exclusive, "exclusive", false, "refuse if the sandbox runs already")
	cmd.MarkFlagsMutuallyExclusive("detach", "apply")
	cmd.MarkFlagsMutuallyExclusive("detach", "rm")
	return cmd
}

// takeName takes the NAME of `run NAME -- COMMAND` from the arguments. A word
// that can name no sandbox begins a command.
func (o *runOptions) takeName(cmd *cobra.Command, args []string) []string {
	if o.Name != "" || cmd.ArgsLenAtDash() >= 0 || len(args) < 2 || args[1] != "--" || record.CheckName(args[0]) != nil {
		return args
	}
	o.Name = args[0]
	return args[2:]
}

func runRun(ctx context.Context, e *env, cmd *cobra.Command, o runOptions, args []string) error {
	if err := o.checkHere(); err != nil {
		return err
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	sb, isNew, err := o.prepare(e, cmd, home)
	if err != nil {
		return err
	}
	before, err := lastSeq(ctx, local.New(home, e.owner), backend.Sandbox{Record: sb.Record()})
	if err != nil {
		return err
	}
	look := startGitLook(ctx, sb)
	defer look.end()
	live, err := e.enter(ctx, home, sb, o.Exclusive)
	if err != nil {
		if isNew {
			err = errors.Join(err, removeUnused(home, sb)) // we ran nothing in it
		}
		return err
	}
	if err := look.tell(e, 0); err != nil {
		return errors.Join(err, live.leave())
	}
	exit, err := o.runIn(ctx, e, cmd, sb, live, args)
	err = errors.Join(err, live.leave())
	notStarted := (*api.CommandError)(nil)
	if errors.As(err, &notStarted) {
		e.sayNamedSo(cmd, home, o.Name, args)
	}
	if notStarted != nil && isNew {
		return errors.Join(err, removeUnused(home, sb))
	}
	err = errors.Join(err, look.tell(e, summaryPatience))
	if o.Detach {
		return err
	}
	return e.finishHere(ctx, home, sb, o, exit, err, before)
}

// prepare finds or makes the sandbox, and says what is to be known before the command
// runs.
func (o *runOptions) prepare(e *env, cmd *cobra.Command, home *record.Home) (sb *record.Sandbox, isNew bool, err error) {
	if sb, isNew, err = o.openOrCreate(e, cmd, home); err != nil {
		return nil, false, err
	}
	if err := e.sayMounts(sb); err != nil {
		return nil, false, err
	}
	if len(o.Env) > 0 {
		if err := sb.RememberVariables(o.Env); err != nil {
			return nil, false, err
		}
	}
	if o.Name == "" && term.IsTerminal(int(e.stderr.Fd())) {
		e.say("sandbox %s", sb.Name())
	}
	return sb, isNew, nil
}

// sayNamedSo says, of a command that could not be started, which word may have
// been meant as the other: the command as a name, or the name as the command.
func (e *env) sayNamedSo(cmd *cobra.Command, home *record.Home, name string, args []string) {
	switch {
	case name != "" && !cmd.Flags().Changed("name"):
		e.say("%[1]s was taken for the name of the sandbox; to run it as the command: agentfense run -- %[1]s -- …", name)
	case name == "" && len(args) > 0 && record.CheckName(args[0]) == nil:
		if _, err := home.Open(args[0]); err == nil {
			e.say("there is a sandbox %[1]s; to run in it: agentfense run %[1]s -- COMMAND", args[0])
		}
	}
}

// removeUnused removes a sandbox that was made for a command which never started,
// unless somebody else has used it meanwhile.
func removeUnused(home *record.Home, sb *record.Sandbox) error {
	if changed, err := review.HasChanges(sb); err != nil || changed {
		return err
	}
	err := home.Remove(sb.Name())
	if held := (*record.HeldError)(nil); errors.As(err, &held) {
		return nil
	}
	return err
}

// runIn runs the command in the live sandbox.
func (o *runOptions) runIn(ctx context.Context, e *env, cmd *cobra.Command, sb *record.Sandbox, live *entered, args []string) (api.Exit, error) {
	if live.joined && changed(cmd, policyFlags) {
		if err := live.client.SetPolicy(ctx, sb.Record().Rules); err != nil {
			return api.Exit{}, err
		}
	}
	if o.Detach {
		return api.Exit{}, o.detach(ctx, e, sb, live, args)
	}
	return e.runInside(ctx, sb, live, execOptions{commandOptions: o.commandOptions}, args)
}

// detach leaves the sandbox running, with the command in it if there is one.
func (o *runOptions) detach(ctx context.Context, e *env, sb *record.Sandbox, live *entered, args []string) error {
	if len(args) > 0 {
		command, err := o.command(e, sb, args)
		if err != nil {
			return err
		}
		command.Detached = true
		command.Timeout = time.Duration(sb.Record().Limits.Timeout)
		running, err := live.client.Exec(ctx, command)
		if err != nil {
			return err
		}
		if err := running.Detach(); err != nil {
			return err
		}
	}
	if err := live.client.Pin(ctx); err != nil { // last: what never ran leaves nothing running
		return err
	}
	_, err := fmt.Fprintln(e.stdout, sb.Name())
	return err
}

// finishHere is finishRun for a sandbox of this host.
func (e *env) finishHere(ctx context.Context, home *record.Home, sb *record.Sandbox, o runOptions, exit api.Exit, runErr error, before uint64) error {
	if runErr != nil { // the sandbox stays, whatever happened to it
		if o.Name == "" {
			e.say("sandbox %s stays", sb.Name())
		}
		return runErr
	}
	e.explainExit(exit)
	return e.finishRun(ctx, local.New(home, e.owner), backend.Sandbox{Record: sb.Record()}, o, exit.ExitCode(), before)
}

// explainExit says why a command did not end by itself.
func (e *env) explainExit(exit api.Exit) {
	switch exit.Reason {
	case api.ReasonTimeout:
		e.say("the command was ended: it ran longer than --timeout allows")
	case api.ReasonOutOfMemory:
		e.say("the command was ended: the sandbox reached its limit of memory (--memory)")
	case api.ReasonStopped:
		e.say("the command was ended: the sandbox was stopped")
	}
}
