package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/supervise"
)

func newStop(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "stop NAME…",
		Short:             "End everything that runs in a sandbox; its delta stays",
		Example:           `  agentfense stop fix`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, runStop(cmd.Context(), e, name))
			}
			return errors.Join(errs...)
		},
	}
}

func runStop(ctx context.Context, e *env, name string) error {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	return stop(ctx, sb)
}

// stop ends a sandbox if it runs and waits until it has let its lock go.
func stop(ctx context.Context, sb *sandbox.Sandbox) error {
	c, err := client(ctx, sb)
	switch {
	case err != nil:
		return err
	case c == nil:
		return supervise.ClearRemains(sb)
	}
	return c.Stop(ctx)
}
