package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

type execOptions struct {
	commandOptions
	Timeout time.Duration
	Rebase  bool
}

func newExec(e *env) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec NAME [flags] [--] COMMAND [ARG…]",
		Short: "Run one more command in a sandbox",
		Long: `Run a command in a sandbox: beside the others if it runs, else by starting it for
the command's time. Several terminals may exec into one sandbox at once.

Afterwards stderr shows what the policy refused this command, and the agentfense
policy set command that allows it.`,
		Example: `  agentfense exec fix -- git status
  agentfense exec fix -- sh -c 'make && make test'
  agentfense exec fix --endpoint https://build:9000 -- make test`,
		Args:              cobra.MinimumNArgs(2),
		Annotations:       map[string]string{annotationInside: "true"},
		ValidArgsFunction: e.completeNames,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		command, err := flagsThenCommand(cmd, args[1:])
		if err != nil || command == nil {
			return err
		}
		return e.exec(cmd, args[0], o, func(bool) []string { return command })
	}
	marked(cmd)
	cmd.Flags().SetInterspersed(false)
	o.register(cmd)
	rebaseFlag(cmd, &o.Rebase)
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "end the command after this time (default: the sandbox's)")
	return cmd
}

// flagsThenCommand reads the flags between the sandbox's name and the command,
// whose own flags are not ours, and returns the command; nil if help was asked
// for instead.
func flagsThenCommand(cmd *cobra.Command, args []string) ([]string, error) {
	if err := cmd.ParseFlags(args); err != nil {
		return nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if help, err := cmd.Flags().GetBool("help"); err != nil || help {
		return nil, errors.Join(err, cmd.Help())
	}
	if cmd.Flags().NArg() == 0 {
		return nil, usageError{errdefs.New(errdefs.Invalid, "exec: no command given (see `%s --help`)", cmd.CommandPath())}
	}
	return cmd.Flags().Args(), nil
}

// exec runs one command more in a sandbox: what argv says, which it tells whether the
// sandbox has programs of this host.
func (e *env) exec(cmd *cobra.Command, name string, o execOptions, argv func(hostPrograms bool) []string) error {
	if o.Timeout < 0 {
		return errdefs.New(errdefs.Invalid, "--timeout %s: want a positive duration", o.Timeout)
	}
	if err := checkVariables(o.Env); err != nil {
		return err
	}
	return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runExec(ctx, e, b, name, o, argv) })
}

func runExec(ctx context.Context, e *env, b backend.Backend, name string, o execOptions, argv func(hostPrograms bool) []string) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	look := lookAtNetwork(ctx, b, sb)
	words := argv(sb.HostPrograms)
	began := time.Now()
	var live backend.Live
	err = e.rebasing(o.Rebase, func(rebase bool) (err error) {
		live, err = b.Enter(ctx, sb, backend.EnterOptions{Rebase: rebase, Checkpoint: o.before(words), Warn: e.warnOf, Recovered: e.sayRecovered, Started: e.sayPublished})
		return err
	})
	if err != nil {
		return outOfTime(ctx, err, o.Timeout, time.Since(began))
	}
	c := o.command(words)
	c.Timeout = o.Timeout
	exit, err := e.execute(ctx, b, live, sb, c)
	if left := live.Leave(); !api.IsSilent(err) {
		err = errors.Join(err, left)
	}
	e.explainExit(exit)
	e.sayConflicts(exit)
	e.sayHeld(name, exit)
	if err == nil {
		e.keep(ctx, b, sb.Ref())
		look.say(ctx, e, b)
		e.sayRefused(ctx, b, sb, exit)
	}
	if code := exit.Code; err == nil && code != exitOK {
		return exitError(code)
	}
	return err
}

// outOfTimeMargin is how much of a time-out may be left when a silent supervisor
// is given up, and is waited for all the same.
const outOfTimeMargin = 5 * time.Second

// outOfTime is err, or says that the time-out is over if it soon is: a command
// that a silent supervisor has not started ends like one that it does not end.
func outOfTime(ctx context.Context, err error, timeout, took time.Duration) error {
	if !api.IsSilent(err) || timeout == 0 || timeout-took > outOfTimeMargin {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(timeout - took):
	}
	return errdefs.New(errdefs.Deadline, "timed out after %s: %w", timeout, err)
}

// execute runs a command with our own streams, and says what helps where a program was
// not found.
func (e *env) execute(ctx context.Context, b backend.Backend, live backend.Live, sb backend.Sandbox, c backend.Command) (backend.Exit, error) {
	e.sayCommand(sb, c)
	exit, err := e.attach(ctx, b, live, sb, c)
	if err == nil && exit.Code == api.ExitNotFound {
		e.sayMissing(sb, c)
	}
	return exit, e.explainNotFound(err, c.Argv[0])
}

// sayCommand says what is to be known before a command runs.
func (e *env) sayCommand(sb backend.Sandbox, c backend.Command) {
	e.sayUnset(c.Env)
	if !sb.HostPrograms {
		return
	}
	variables := variablesOf(sb, c)
	if len(c.Argv) > 0 && !slices.ContainsFunc(variables, isPath) {
		e.sayProgram(sb.Record, c.Argv[0])
	}
	e.sayRustup(sb.Record, variables)
}

// variablesOf are the variables that a command has by --env, now or of earlier ones.
func variablesOf(sb backend.Sandbox, c backend.Command) []string {
	var list []string
	for _, name := range sb.Variables {
		list = append(list, string(name))
	}
	return append(list, c.Env...)
}

// isPath reports whether a variable of --env is PATH.
func isPath(variable string) bool { return variable == "PATH" || strings.HasPrefix(variable, "PATH=") }

// explainNotFound says where on the host a command is that was not found
// inside, unless sayProgram has.
func (e *env) explainNotFound(err error, name string) error {
	notStarted := (*api.CommandError)(nil)
	if e.toldPrograms[name] || !errors.As(err, &notStarted) || notStarted.NotExecutable || filepath.Base(name) != name {
		return err
	}
	path, lookErr := exec.LookPath(name)
	if lookErr != nil || slices.ContainsFunc(supervise.SystemPath, func(dir string) bool { return dir == filepath.Dir(path) }) {
		return err
	}
	if real, linkErr := filepath.EvalSymlinks(path); linkErr == nil && real != path {
		return fmt.Errorf("%w; outside it is %s, a link to %s: --mount can show both inside", err, record.HostPath(path), record.HostPath(real))
	}
	return fmt.Errorf("%w; outside it is %s: --mount can show its directory inside", err, record.HostPath(path))
}
