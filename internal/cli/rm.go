package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func newRm(e *env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm NAME…",
		Short: "Remove a sandbox with its delta; its audit log stays",
		Long: `Remove a sandbox with its delta. If the delta holds changes that were not applied,
or the sandbox has snapshots that you asked for, nothing is removed unless --force is
given. The source is not touched, and the audit log stays readable under the sandbox's
id.`,
		Example: `  agentfense rm fix
  agentfense rm --force fix`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			return forEach(args, func(name string) error { return runRm(ctx, e, b, name, force) })
		})
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove it although it runs or has changes that were not applied; no error if it does not exist")
	return cmd
}

func runRm(ctx context.Context, e *env, b backend.Backend, name string, force bool) error {
	how := backend.RemoveEmpty
	if force {
		how = backend.RemoveForced
	}
	p := e.progress("removing " + vpath.Escape(name))
	gone, err := b.Remove(ctx, name, how)
	p.stop()
	e.sayKilled(gone.Stopped)
	switch {
	case err != nil || gone.Name == "":
		return err
	case gone.LogHere:
		e.say("%s is gone; its log stays: agentfense audit %s", gone.Name, gone.ID)
	default:
		e.say("%s is gone; its log stays on the server, as that of %s", gone.Name, gone.ID)
	}
	return nil
}

func newPending(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    local.PendingVerb + " NAME",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			home, err := e.openHome()
			if err != nil {
				return err
			}
			return local.New(home, e.getenv, e.owner).CheckPending(cmd.Context(), args[0])
		},
	}
}
