package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

type pruneOptions struct {
	backend.UnusedOptions
	DryRun bool
	Yes    bool
}

func newPrune(e *env) *cobra.Command {
	var o pruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the sandboxes that are stopped and hold nothing",
		Long: `Remove every sandbox that does not run and has neither changes that were not applied
nor snapshots that you asked for, and print its name. The audit logs stay. With --force
the others are removed, too, with what they hold.

On a terminal it names what it is about to remove and asks.`,
		Example: `  agentfense prune --dry-run
  agentfense prune --older 72h
  agentfense prune --force --older 720h`,
		Args: cobra.NoArgs,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Older < 0 {
			return errdefs.New(errdefs.Invalid, "--older %s: want a positive duration", o.Older)
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			list, err := b.Unused(ctx, o.UnusedOptions)
			return errors.Join(e.prune(ctx, list, o), err)
		})
	}
	f := cmd.Flags()
	f.DurationVar(&o.Older, "older", 0, "only those in which nothing has happened for this `DURATION`, such as 72h")
	f.BoolVar(&o.DryRun, "dry-run", false, "print the names, and remove nothing")
	f.BoolVarP(&o.Force, "force", "f", false, "also those with changes that were not applied")
	f.BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	return cmd
}

// prune removes the sandboxes of list, of which it makes sure first.
func (e *env) prune(ctx context.Context, list []backend.Unused, o pruneOptions) error {
	ask := !o.DryRun && !o.Yes && e.canAsk()
	for _, u := range list {
		if ask || !u.Holds.Nothing() {
			e.say("%s: holds %s", u.Name, describeHolds(u.Holds))
		}
	}
	if ask && len(list) > 0 && !e.confirm("Remove these?") {
		return errdefs.New(errdefs.Canceled, "prune: nothing was removed")
	}
	var errs []error
	for _, u := range list {
		if !o.DryRun {
			if err := e.removeUnused(ctx, u); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if _, err := fmt.Fprintln(e.stdout, u.Name); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

func (e *env) removeUnused(ctx context.Context, u backend.Unused) error {
	p := e.progress("removing " + u.Name)
	defer p.stop()
	return u.Remove(ctx)
}

// describeHolds says what goes with a sandbox.
func describeHolds(h backend.Holds) string {
	switch {
	case h.Unknown:
		return "what cannot be counted"
	case h.Some:
		return "changes not applied"
	case h.KeptHome:
		return "a kept home directory"
	case h.Changes > 0:
		return plural(h.Changes, "change") + " not applied"
	}
	return "nothing"
}
