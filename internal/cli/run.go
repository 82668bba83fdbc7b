package cli

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

type runOptions struct {
	sandboxOptions
	commandOptions
	exportOptions
	Apply     bool
	Remove    bool
	Detach    bool
	Exclusive bool
	Learn     string
	learned   learned // in place of Learn
}

// commandOptions are the flags of one command: those of run, exec and shell.
type commandOptions struct {
	Env        []string
	WorkDir    string
	Checkpoint bool
}

func (o *commandOptions) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.Env, "env", nil, "set the variable `NAME[=VALUE]` inside; without a value, to the caller's value")
	cmd.Flags().BoolVar(&o.Checkpoint, "checkpoint", false, "take a snapshot first; agentfense restore NAME @{1} goes back to it")
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
run; without --name it stays only if something was changed. If the sandbox NAME runs
already, the command joins it.

As for exec, the name can also be one word before --: run fix -- make test. If the
first argument of the command is --, put another -- before the command.

The variables of --env are remembered for the commands that follow in the sandbox.
NAME=VALUE is stored in the state directory, readable by you alone. Of NAME only
the name is stored, and each command takes the value of its caller: give secrets
that way. With --secret, a command uses a key at its host without knowing it.

With --endpoint the directory is uploaded, or --codebase names an existing codebase.

The exit code is the command's; 124 after --timeout, 125 if the sandbox could
not be set up, 126 and 127 if the command could not be started, 128+N after
signal N, 137 out of memory.`,
		Example: `  agentfense run -- make test
  agentfense run --preset development --hide '*.sqlite' --name fix -- sh
  agentfense run --allow-net api.example.com --env API_KEY --mount ~/.local/bin --name fix -- your-agent
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
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			return runRun(ctx, e, cmd, b, o, func(bool) []string { return args })
		})
	}
	o.register(cmd)
	return cmd
}

// register adds the flags of run.
func (o *runOptions) register(cmd *cobra.Command) {
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
	learnFlag(cmd, &o.Learn)
	o.exportOptions.register(cmd)
	for _, flag := range []string{"apply", "otlp", "alert-webhook", "ask-hook"} {
		cmd.MarkFlagsMutuallyExclusive("detach", flag)
	}
	cmd.MarkFlagsMutuallyExclusive("detach", "rm")
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

func runRun(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, o runOptions, argv func(hostPrograms bool) []string) error {
	receivers, err := o.exporters(e)
	if err != nil {
		return err
	}
	learning, err := o.startLearning(cmd)
	if err != nil {
		return err
	}
	sb, isNew, err := o.prepare(ctx, e, cmd, b)
	if err != nil {
		return err
	}
	before := uint64(0)
	if !isNew {
		if before, err = lastSeq(ctx, b, sb); err != nil {
			return err
		}
	}
	defer e.startExport(ctx, receivers, b, sb, before).end(ctx)
	unused := func(err error) error { // we ran nothing in it
		if !isNew {
			return err
		}
		_, removing := b.RemoveUnused(ctx, sb)
		return errors.Join(err, removing)
	}
	look := startGitLook(ctx, b, sb)
	defer look.end()
	words := argv(sb.HostPrograms)
	live, err := b.Enter(ctx, sb, backend.EnterOptions{Exclusive: o.Exclusive, Learn: learning != nil, Checkpoint: o.before(words), Warn: e.warnOf, Recovered: e.sayRecovered, Started: e.sayPublished})
	if err != nil {
		return unused(err)
	}
	if err := look.tell(e, 0); err != nil {
		return errors.Join(err, live.Leave())
	}
	c := o.command(words)
	c.Timeout, c.Remember = o.Timeout, !isNew
	endLogin := o.login.follow(ctx, live)
	exit, err := o.runIn(ctx, e, b, live, sb, c)
	endLogin()
	err = errors.Join(err, learning.take(ctx, live), live.Leave())
	if _, never := errors.AsType[*backend.NotStartedError](err); never {
		e.sayNamedSo(ctx, cmd, b, o.Name, c.Argv)
		return unused(err)
	}
	err = errors.Join(err, look.tell(e, summaryPatience))
	if o.Detach {
		return err
	}
	if err == nil {
		e.explainExit(exit)
		err = learning.write(ctx, e, cmd, b, sb, c, before)
	}
	if err != nil {
		e.say("sandbox %[1]s stays; what the command changed, if anything: agentfense diff %[1]s", sb.Record.Name)
		return err
	}
	e.sayConflicts(exit)
	e.sayHeld(sb.Record.Name, exit)
	e.keep(ctx, b, sb.Ref())
	return e.finishRun(ctx, b, sb, o, exit.Code, before)
}

// prepare finds or makes the sandbox, and says what is to be known before the command
// runs.
func (o *runOptions) prepare(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend) (sb backend.Sandbox, isNew bool, err error) {
	if o.Env, err = o.addToolchains(ctx, e, cmd, b, o.Env); err != nil {
		return sb, false, err
	}
	if sb, isNew, err = o.openOrCreate(ctx, e, cmd, b, o.Env); err != nil {
		return sb, false, err
	}
	if err := e.sayUnshown(ctx, b, sb); err != nil {
		return sb, false, err
	}
	if o.Name == "" && term.IsTerminal(int(e.stderr.Fd())) {
		e.say("sandbox %s", sb.Record.Name)
	}
	return sb, isNew, nil
}

// sayNamedSo says, of a command that could not be started, which word may have
// been meant as the other: the command as a name, or the name as the command.
func (e *env) sayNamedSo(ctx context.Context, cmd *cobra.Command, b backend.Backend, name string, args []string) {
	switch {
	case name != "" && !cmd.Flags().Changed("name"):
		e.say("%[1]s was taken for the name of the sandbox; to run it as the command: agentfense run -- %[1]s -- …", name)
	case name == "" && len(args) > 0 && record.CheckName(args[0]) == nil:
		if _, err := b.Sandbox(ctx, args[0]); err == nil {
			e.say("there is a sandbox %[1]s; to run in it: agentfense run %[1]s -- COMMAND", args[0])
		}
	}
}

// runIn runs the command in the live sandbox, or leaves the sandbox running, with the
// command in it if there is one.
func (o *runOptions) runIn(ctx context.Context, e *env, b backend.Backend, live backend.Live, sb backend.Sandbox, c backend.Command) (backend.Exit, error) {
	if !o.Detach {
		return e.execute(ctx, b, live, sb, c)
	}
	e.sayCommand(sb, c)
	exit, err := live.Detach(ctx, c, e.stderr)
	if err == nil && exit.Code != exitOK {
		err = exitError(exit.Code)
	}
	if err == nil {
		_, err = fmt.Fprintln(e.stdout, sb.Record.Name)
	}
	return exit, err
}

// sayConflicts tells which changes met others in the codebase.
func (e *env) sayConflicts(exit backend.Exit) {
	for _, text := range exit.Conflicts[:min(len(exit.Conflicts), summaryLines)] {
		e.say("conflict: %s was changed in the codebase meanwhile", vpath.Escape(path.Clean(vpath.DecodeText(text))))
	}
	if more := exit.ConflictCount - summaryLines; more > 0 {
		e.say("… and %d more conflicts; see the audit log", more)
	}
}

// sayHeld says that what a command changed waits in the sandbox.
func (e *env) sayHeld(name string, exit backend.Exit) {
	if exit.SyncHeld {
		e.say("the changes stay in the sandbox, because a token without the scope apply ran a command in it; to apply them with a token that has the scope: agentfense apply %s", name)
	}
}

// explainExit says why a command did not end by itself.
func (e *env) explainExit(exit backend.Exit) {
	switch exit.Reason {
	case api.ReasonTimeout:
		e.say("the command was ended: it ran longer than --timeout allows")
	case api.ReasonOutOfMemory:
		e.say("the command was ended: the sandbox reached its limit of memory (--memory)")
	case api.ReasonStopped:
		e.say("the command was ended: the sandbox was stopped")
	}
}
