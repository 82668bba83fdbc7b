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
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove it although it runs or has changes that were not applied; no error if it does not exist")
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
	case force:
		return e.destroyOnServer(ctx, s, sb)
	case sb.Status == control.Running:
		return fault.New(fault.Precondition, "sandbox %s: running; %s", sb.Record.Name, stopFirst(sb.Record.Name))
	}
	pending, err := s.Review(ctx, sb, nil, true, "")
	if err == nil {
		err = refusePending(sb.Record.Name, sandbox.PendingOf(pending.Files()))
	}
	if err != nil {
		return err
	}
	return e.destroyOnServer(ctx, s, sb)
}

// destroyOnServer destroys a sandbox of a server and forgets what was uploaded for
// it.
func (e *env) destroyOnServer(ctx context.Context, s control.Server, sb control.Sandbox) error {
	if err := s.Destroy(ctx, string(sb.Record.ID)); err != nil {
		return err
	}
	return e.forgetUpload(sb)
}

func (e *env) forgetUpload(sb control.Sandbox) error {
	home, err := e.openHome()
	if err != nil {
		return err
	}
	return home.ForgetUpload(sb.Record.ID)
}

func runRm(ctx context.Context, e *env, home *sandbox.Home, name string, force bool) error {
	sb, err := home.Open(name)
	var check func(*sandbox.Sandbox) error
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
	if !force {
		check = func(sb *sandbox.Sandbox) error { return e.checkPending(ctx, name, sb) }
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
func (e *env) checkPending(ctx context.Context, name string, sb *sandbox.Sandbox) error {
	if sb == nil {
		return fault.New(fault.Precondition, "sandbox %[1]s: its record is damaged, so changes that were not applied cannot be counted; to remove it with all it holds: agentfense rm --force %[1]s", vpath.Escape(name))
	}
	if done, err := e.asOwner(ctx, sb, []string{pendingVerb, sb.Name()}); done || err != nil {
		return err
	}
	pending, err := sb.Pending()
	if err != nil {
		return fault.New(fault.KindOf(err), "%w; to remove it with all it holds: agentfense rm --force %s", err, sb.Name())
	}
	return refusePending(sb.Name(), pending)
}

// refusePending is the error of rm for changes that were not applied. Errors:
// Precondition.
func refusePending(name string, p sandbox.Pending) error {
	switch p.Changes {
	case 0:
		return nil
	case p.LeftOut:
		return fault.New(fault.Precondition, "sandbox %[1]s: %[2]s that apply never takes; look: agentfense diff %[1]s · remove it with them: agentfense rm --force %[1]s", name, plural(p.LeftOut, "change"))
	}
	return fault.New(fault.Precondition, "sandbox %[1]s: %[2]s not applied; look: agentfense diff %[1]s · keep: agentfense apply %[1]s · drop: agentfense discard %[1]s, or remove it with them: agentfense rm --force %[1]s", name, plural(p.Changes, "change"))
}

// remove is removeIf whatever the sandbox holds.
func (e *env) remove(home *sandbox.Home, name string) error { return e.removeIf(home, name, nil) }

// removeIf removes a sandbox unless check refuses, which takes a while for a large
// delta, and what killed commands have left of others.
func (e *env) removeIf(home *sandbox.Home, name string, check func(*sandbox.Sandbox) error) error {
	p := e.progress("removing " + vpath.Escape(name))
	defer p.stop()
	err := home.RemoveIf(name, check)
	if held := (*sandbox.HeldError)(nil); errors.As(err, &held) && held.Owner.Purpose == sandbox.PurposeSupervise {
		return fault.New(fault.KindOf(err), "%w; %s", err, stopFirst(name))
	}
	return errors.Join(err, supervise.SweepHome(home))
}

// stopFirst says how a sandbox that runs can be removed.
func stopFirst(name string) string {
	return fmt.Sprintf("stop it first: agentfense stop %[1]s, or remove it with what was not applied: agentfense rm --force %[1]s", vpath.Escape(name))
}
