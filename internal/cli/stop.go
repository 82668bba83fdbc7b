package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/supervise"
)

func newStop(e *env) *cobra.Command {
	timeout := supervise.StopPatience
	cmd := &cobra.Command{
		Use:               "stop NAME…",
		Short:             "End everything that runs in a sandbox; its delta stays",
		Example:           "  agentfense stop fix\n  agentfense stop --timeout 5s fix",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, runStop(cmd.Context(), e, name, timeout))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "kill a supervisor that has not ended by then")
	return cmd
}

func runStop(ctx context.Context, e *env, name string, timeout time.Duration) error {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	return e.stop(ctx, sb, timeout)
}

// stop ends a sandbox if it runs and waits until it has let its lock go.
func (e *env) stop(ctx context.Context, sb *sandbox.Sandbox, timeout time.Duration) error {
	killed, err := supervise.End(ctx, sb, timeout)
	if killed {
		e.say("%s: its supervisor did not end within %s and was killed; the delta is whole", sb.Name(), timeout)
	}
	return err
}
