package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

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
		RunE: func(cmd *cobra.Command, args []string) error {
			home, err := e.openHome()
			if err != nil {
				return err
			}
			var errs []error
			for _, name := range args {
				errs = append(errs, runRm(cmd.Context(), e, home, name, force))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "stop it first if it runs; no error if it does not exist")
	return cmd
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

// remove removes a sandbox, which takes a while for a large delta.
func (e *env) remove(home *sandbox.Home, name string) error {
	p := e.progress("removing " + vpath.Escape(name))
	defer p.stop()
	return home.Remove(name)
}
