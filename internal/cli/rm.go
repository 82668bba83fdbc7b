package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/supervise"
	"github.com/agentfense/agentfense/internal/vpath"
)

func newRm(e *env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm NAME…",
		Short: "Remove a sandbox with its delta; its audit log stays",
		Long: `Remove a sandbox and every change in its delta that was not applied. The source
is not touched, and the audit log stays readable under the sandbox's id.`,
		Example: `  agentfense rm fix
  agentfense rm --force fix`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.either(cmd,
			func() error {
				home, err := e.openHome()
				if err != nil {
					return err
				}
				return forEach(args, func(name string) error { return runRm(cmd.Context(), e, home, name, force) })
			},
			func(ctx context.Context, s control.Server) error {
				return forEach(args, func(name string) error { return e.removeOnServer(ctx, s, name, force) })
			}, "force")
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "stop it first if it runs; no error if it does not exist")
	return cmd
}

// removeOnServer destroys a sandbox of a server.
func (e *env) removeOnServer(ctx context.Context, s control.Server, name string, force bool) error {
	sb, err := s.Sandbox(ctx, name)
	switch {
	case force && fault.Is(err, fault.NotFound):
		return nil
	case err != nil:
		return err
	case sb.Status == control.Running && !force:
		return fault.New(fault.Precondition, "sandbox %s: running; %s", sb.Record.Name, stopFirst(sb.Record.Name))
	}
	return s.Destroy(ctx, string(sb.Record.ID))
}

func runRm(ctx context.Context, e *env, home *sandbox.Home, name string, force bool) error {
	sb, err := home.Open(name)
	switch {
	case force && fault.Is(err, fault.NotFound):
		return nil
	case err != nil: // damaged ones can be removed too
	case force:
		err = e.stop(ctx, sb, supervise.StopPatience)
	default:
		err = supervise.ClearRemains(sb)
	}
	if sb != nil && err != nil {
		return err
	}
	if err := e.remove(home, name); err != nil || sb == nil {
		return err
	}
	e.say("%s is gone; its log stays: agentfense audit %s", sb.Name(), sb.ID())
	return nil
}

// remove removes a sandbox, which takes a while for a large delta, and what killed
// commands have left of others.
func (e *env) remove(home *sandbox.Home, name string) error {
	p := e.progress("removing " + vpath.Escape(name))
	defer p.stop()
	err := home.Remove(name)
	if held := (*sandbox.HeldError)(nil); errors.As(err, &held) && held.Owner.Purpose == sandbox.PurposeSupervise {
		return fault.New(fault.KindOf(err), "%w; %s", err, stopFirst(name))
	}
	return errors.Join(err, supervise.SweepHome(home))
}

// stopFirst says how a sandbox that runs can be removed.
func stopFirst(name string) string {
	return fmt.Sprintf("stop it first: agentfense stop %[1]s, or remove it all the same: agentfense rm --force %[1]s", vpath.Escape(name))
}
