package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
)

func newStop(e *env) *cobra.Command {
	var o backend.StopOptions
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:               "stop NAME…",
		Short:             "End everything that runs in a sandbox; its delta stays",
		Example:           "  agentfense stop fix\n  agentfense stop --timeout 5s fix",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("timeout") {
			o.Timeout = &timeout
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			return forEach(args, func(name string) error {
				stopped, err := b.Stop(ctx, name, o)
				e.sayKilled(stopped)
				if err == nil {
					e.keep(ctx, b, name)
				}
				return err
			})
		})
	}
	cmd.Flags().BoolVarP(&o.Force, "force", "f", false, "kill a supervisor that has not ended within a second")
	cmd.Flags().DurationVar(&timeout, "timeout", supervise.StopPatience, "kill a supervisor that has not ended by then")
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

// sayKilled says that a supervisor was killed, and why.
func (e *env) sayKilled(s backend.Stopped) {
	switch {
	case s.Killed && s.Silent:
		e.say("%s: its supervisor did not answer and was killed; the delta is whole", s.Name)
	case s.Killed:
		e.say("%s: its supervisor did not end within %s and was killed; the delta is whole", s.Name, s.Patience)
	}
}
