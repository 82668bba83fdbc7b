package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

func newRm(e *env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm NAME…",
		Short: "Remove a sandbox with its delta; its audit log stays",
		Long: `Remove a sandbox with its delta. If the delta holds changes that were not applied,
nothing is removed unless --force is given. The source is not touched, and the
audit log stays readable under the sandbox's id.`,
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

// destroyOnServer destroys a sandbox of a server, with what was uploaded for it.
func (e *env) destroyOnServer(ctx context.Context, s backend.Server, sb backend.Sandbox) error {
	if err := s.Raw().Destroy(ctx, string(sb.Record.ID)); err != nil {
		return err
	}
	return e.forgetUpload(ctx, s, sb)
}

// forgetUpload removes what is left of the upload of a sandbox that is gone: what this
// host remembers of the directory, and the uploaded copy. The copy stays where the
// server synchronises changes into it, which the directory may lack.
func (e *env) forgetUpload(ctx context.Context, s backend.Server, sb backend.Sandbox) error {
	home, err := e.openHome()
	if err != nil {
		return err
	}
	upload, err := home.Upload(sb.Record.ID)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := upload.Forget(); err != nil {
		return err
	}
	if sync := sb.Record.Served.Sync; sync != "" && sync != config.SyncManual {
		return nil
	}
	return deleteUpload(ctx, s, upload.CodebaseID())
}

// deleteUpload deletes an uploaded copy, unless another sandbox is made of it.
func deleteUpload(ctx context.Context, s backend.Server, codebase string) error {
	err := s.DeleteCodebase(context.WithoutCancel(ctx), codebase)
	if errdefs.Is(err, errdefs.Precondition) {
		return nil
	}
	return err
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
			return local.New(home, e.owner).CheckPending(cmd.Context(), args[0])
		},
	}
}

// remove is removeIf whatever the sandbox holds.
func (e *env) remove(home *record.Home, name string) error { return e.removeIf(home, name, nil) }

// removeIf removes a sandbox unless check refuses, which takes a while for a large
// delta, and what killed commands have left of others.
func (e *env) removeIf(home *record.Home, name string, check func(*record.Sandbox) error) error {
	p := e.progress("removing " + vpath.Escape(name))
	defer p.stop()
	err := home.RemoveIf(name, check)
	if held := (*record.HeldError)(nil); errors.As(err, &held) && held.Owner.Purpose == record.PurposeSupervise {
		return errdefs.New(errdefs.KindOf(err), "%w; %s", err, backend.StopFirst(name))
	}
	return errors.Join(err, launch.SweepHome(home))
}
