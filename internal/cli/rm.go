package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
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
		return e.dispatch(cmd,
			func() error {
				home, err := e.openHome()
				if err != nil {
					return err
				}
				return forEach(args, func(name string) error { return runRm(cmd.Context(), e, home, name, force) })
			},
			func(ctx context.Context, s backend.Server) error {
				return forEach(args, func(name string) error { return e.removeOnServer(ctx, s, name, force) })
			}, "force")
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove it although it runs or has changes that were not applied; no error if it does not exist")
	return cmd
}

// removeOnServer destroys a sandbox of a server.
func (e *env) removeOnServer(ctx context.Context, s backend.Server, name string, force bool) error {
	sb, err := s.Sandbox(ctx, name)
	switch {
	case force && errdefs.Is(err, errdefs.NotFound):
		return nil
	case err != nil:
		return err
	case force:
		return e.removeKnown(ctx, s, sb)
	case sb.Status == record.Running:
		return errdefs.New(errdefs.Precondition, "sandbox %s: running; %s", sb.Record.Name, stopFirst(sb.Record.Name))
	}
	pending, err := s.Review(ctx, sb, nil, true, "")
	if err == nil {
		err = refusePending(sb.Record.Name, review.PendingOf(pending.Files()))
	}
	if err != nil {
		return err
	}
	return e.removeKnown(ctx, s, sb)
}

// removeKnown destroys a sandbox of a server that rm was given.
func (e *env) removeKnown(ctx context.Context, s backend.Server, sb backend.Sandbox) error {
	err := e.destroyOnServer(ctx, s, sb)
	if err == nil {
		e.say("%s is gone; its log stays on the server, as that of %s", sb.Record.Name, sb.Record.ID)
	}
	return err
}

// destroyOnServer destroys a sandbox of a server, with what was uploaded for it.
func (e *env) destroyOnServer(ctx context.Context, s backend.Server, sb backend.Sandbox) error {
	if err := s.Destroy(ctx, string(sb.Record.ID)); err != nil {
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

func runRm(ctx context.Context, e *env, home *record.Home, name string, force bool) error {
	sb, err := home.Open(name)
	var check func(*record.Sandbox) error
	switch {
	case force && errdefs.Is(err, errdefs.NotFound):
		return nil
	case err != nil: // damaged ones can be removed too
	case force:
		err = e.stop(ctx, sb, supervise.StopPatience)
	default:
		err = launch.Cleanup(sb)
	}
	if sb != nil && err != nil {
		return err
	}
	if !force {
		check = func(sb *record.Sandbox) error { return e.checkPending(ctx, name, sb) }
	}
	if err := e.removeIf(home, name, check); err != nil || sb == nil {
		return err
	}
	e.say("%s is gone; its log stays: agentfense audit %s", sb.Name(), sb.ID())
	return nil
}

// pendingVerb is the hidden verb that refuses a sandbox with changes, run where
// files that are closed to their owner are open to us.
const pendingVerb = "__pending"

func newPending(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    pendingVerb + " NAME",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, sb, err := e.open(args[0])
			if err != nil {
				return err
			}
			return e.checkPending(cmd.Context(), args[0], sb)
		},
	}
}

// checkPending refuses to remove a sandbox with changes that were not applied, or
// one of which nobody can tell. sb is nil if its record is damaged.
func (e *env) checkPending(ctx context.Context, name string, sb *record.Sandbox) error {
	if sb == nil {
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: its record is damaged, so changes that were not applied cannot be counted; to remove it with all it holds: agentfense rm --force %[1]s", vpath.Escape(name))
	}
	if done, err := e.asOwner(ctx, sb, []string{pendingVerb, sb.Name()}); done || err != nil {
		return err
	}
	pending, err := review.CountPending(sb)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "%w; to remove it with all it holds: agentfense rm --force %s", err, sb.Name())
	}
	return refusePending(sb.Name(), pending)
}

// refusePending is the error of rm for changes that were not applied. Errors:
// Precondition.
func refusePending(name string, p review.Pending) error {
	switch p.Changes {
	case 0:
		return nil
	case p.LeftOut:
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: %[2]s that apply never takes; look: agentfense diff %[1]s · remove it with them: agentfense rm --force %[1]s", name, plural(p.LeftOut, "change"))
	}
	return errdefs.New(errdefs.Precondition, "sandbox %[1]s: %[2]s not applied; look: agentfense diff %[1]s · keep: agentfense apply %[1]s · drop: agentfense discard %[1]s, or remove it with them: agentfense rm --force %[1]s", name, plural(p.Changes, "change"))
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
		return errdefs.New(errdefs.KindOf(err), "%w; %s", err, stopFirst(name))
	}
	return errors.Join(err, launch.SweepHome(home))
}

// stopFirst says how a sandbox that runs can be removed.
func stopFirst(name string) string {
	return fmt.Sprintf("stop it first: agentfense stop %[1]s, or remove it with what was not applied: agentfense rm --force %[1]s", vpath.Escape(name))
}
