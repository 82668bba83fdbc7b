package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
)

func newStop(e *env) *cobra.Command {
	timeout := supervise.StopPatience
	force := false
	cmd := &cobra.Command{
		Use:               "stop NAME…",
		Short:             "End everything that runs in a sandbox; its delta stays",
		Example:           "  agentfense stop fix\n  agentfense stop --timeout 5s fix",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if force {
			timeout = time.Second
		}
		return e.dispatch(cmd,
			func() error {
				return forEach(args, func(name string) error { return runStop(cmd.Context(), e, name, timeout) })
			},
			func(ctx context.Context, s backend.Server) error {
				return forEach(args, func(name string) error { return stopOnServer(ctx, s, name) })
			})
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill a supervisor that has not ended within a second")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "kill a supervisor that has not ended by then")
	cmd.MarkFlagsMutuallyExclusive("force", "timeout")
	return cmd
}

// forEach does something with all names, whatever becomes of one.
func forEach(names []string, do func(string) error) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, do(name))
	}
	return errors.Join(errs...)
}

// stopOnServer stops a sandbox that runs.
func stopOnServer(ctx context.Context, s backend.Server, name string) error {
	sb, err := s.Sandbox(ctx, name)
	if err != nil || sb.Status != record.Running {
		return err
	}
	return s.Stop(ctx, string(sb.Record.ID))
}

func runStop(ctx context.Context, e *env, name string, timeout time.Duration) error {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	return e.stop(ctx, sb, timeout)
}

// stop ends a sandbox if it runs and waits until it has let its lock go.
func (e *env) stop(ctx context.Context, sb *record.Sandbox, timeout time.Duration) error {
	began := time.Now()
	killed, err := supervise.End(ctx, sb, timeout)
	switch {
	case killed && time.Since(began) < timeout:
		e.say("%s: its supervisor did not answer and was killed; the delta is whole", sb.Name())
	case killed:
		e.say("%s: its supervisor did not end within %s and was killed; the delta is whole", sb.Name(), timeout)
	}
	return err
}
