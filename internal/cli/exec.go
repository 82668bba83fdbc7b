package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
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
		return e.exec(cmd, args[0], o, func() []string { return command }, command)
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

// exec runs one command more in a sandbox: one here, or another on a server.
func (e *env) exec(cmd *cobra.Command, name string, o execOptions, here func() []string, there []string) error {
	if o.Timeout < 0 {
		return errdefs.New(errdefs.Invalid, "--timeout %s: want a positive duration", o.Timeout)
	}
	if err := checkVariables(o.Env); err != nil {
		return err
	}
	return e.dispatch(cmd,
		func() error { return runExec(cmd.Context(), e, name, o, here()) },
		func(ctx context.Context, s backend.Server) error { return e.execOnServer(ctx, s, name, o, there) },
		"env", "workdir", "timeout", "shell")
}

func runExec(ctx context.Context, e *env, name string, o execOptions, argv []string) error {
	home, sb, err := e.open(name)
	if err == nil {
		err = e.settleSource(ctx, sb, o.Rebase)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	live, err := e.enter(ctx, home, sb, false)
	if err != nil {
		return outOfTime(ctx, err, o.Timeout, time.Since(began))
	}
	exit, err := e.runInside(ctx, sb, live, o, argv)
	if left := live.leave(); !api.IsSilent(err) {
		err = errors.Join(err, left)
	}
	e.explainExit(exit)
	if err == nil {
		e.sayRefused(home, sb, exit)
	}
	if code := exit.ExitCode(); err == nil && code != exitOK {
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

func (e *env) runInside(ctx context.Context, sb *record.Sandbox, live *entered, o execOptions, argv []string) (api.Exit, error) {
	command, err := o.command(e, sb, argv)
	if err != nil {
		return api.Exit{}, err
	}
	command.Timeout = time.Duration(sb.Record().Limits.Timeout)
	if o.Timeout > 0 {
		command.Timeout = o.Timeout
	}
	exit, err := e.execute(ctx, live.client, command)
	if err == nil && exit.ExitCode() == api.ExitNotFound {
		e.sayMissing(sb.Record(), command)
	}
	return exit, e.explainNotFound(err, argv[0])
}

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
