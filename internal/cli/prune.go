package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

type pruneOptions struct {
	Older  time.Duration
	DryRun bool
	Force  bool
	Yes    bool
}

func newPrune(e *env) *cobra.Command {
	var o pruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the sandboxes that are stopped and hold nothing",
		Long: `Remove every sandbox that does not run and has no changes that were not applied,
and print its name. The audit logs stay. With --force those with changes go, too,
with the changes.

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
		return e.dispatch(cmd,
			func() error {
				home, err := e.openHome()
				if err != nil {
					return err
				}
				list, err := e.unused(cmd.Context(), home, o)
				return errors.Join(e.prune(list, o), err)
			},
			func(ctx context.Context, s backend.Server) error {
				list, err := e.unusedOnServer(ctx, s, o)
				return errors.Join(e.prune(list, o), err)
			}, "older", "dry-run", "force", "yes")
	}
	f := cmd.Flags()
	f.DurationVar(&o.Older, "older", 0, "only those in which nothing has happened for this `DURATION`, such as 72h")
	f.BoolVar(&o.DryRun, "dry-run", false, "print the names, and remove nothing")
	f.BoolVarP(&o.Force, "force", "f", false, "also those with changes that were not applied")
	f.BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	return cmd
}

// prunable is a sandbox that prune is to remove.
type prunable struct {
	name   string
	holds  string // what goes with it, "" for nothing
	remove func() error
}

// prune removes the sandboxes of list, of which it makes sure first.
func (e *env) prune(list []prunable, o pruneOptions) error {
	ask := !o.DryRun && !o.Yes && e.canAsk()
	for _, p := range list {
		if p.holds != "" {
			e.say("%s: holds %s", p.name, p.holds)
		} else if ask {
			e.say("%s: holds nothing", p.name)
		}
	}
	if ask && len(list) > 0 && !e.confirm("Remove these?") {
		return errdefs.New(errdefs.Canceled, "prune: nothing was removed")
	}
	var errs []error
	for _, p := range list {
		if !o.DryRun {
			if err := p.remove(); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if _, err := fmt.Fprintln(e.stdout, p.name); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// unused lists the sandboxes of this host that prune may remove. A server's are left
// to it. The error joins one for each of which nobody can tell; the others are listed
// all the same.
func (e *env) unused(ctx context.Context, home *record.Home, o pruneOptions) ([]prunable, error) {
	all, damaged := home.List()
	errs := []error{damaged}
	var list []prunable
	for _, sb := range all {
		_, held, err := sb.Holder()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if held || sb.Record().Served != nil || time.Since(review.LastUsed(sb)) < o.Older {
			continue
		}
		holds, err := e.holds(sb)
		switch {
		case err != nil && !o.Force:
			errs = append(errs, err)
			continue
		case err != nil:
			holds = "what cannot be counted"
		case holds != "" && !o.Force:
			continue
		}
		list = append(list, prunable{sb.Name(), holds, func() error { return e.removeUnless(ctx, home, sb, o.Force) }})
	}
	return list, errors.Join(errs...)
}

// holds says what would go with a sandbox, "" for nothing.
func (e *env) holds(sb *record.Sandbox) (string, error) {
	if closed, err := sb.IsClosed(); closed || err != nil {
		return "changes not applied", err
	}
	n, err := review.CountChanges(sb)
	if err == nil && n == 0 && sb.Record().Home == record.HomeKeep {
		return "a kept home directory", nil
	}
	if err != nil || n == 0 {
		return "", err
	}
	return plural(n, "change") + " not applied", nil
}

// removeUnless removes a sandbox unless it holds something by now, or whatever it
// holds.
func (e *env) removeUnless(ctx context.Context, home *record.Home, sb *record.Sandbox, whatever bool) error {
	if whatever {
		return e.remove(home, sb.Name())
	}
	return e.removeIf(home, sb.Name(), func(sb *record.Sandbox) error { return e.checkPending(ctx, sb.Name(), sb) })
}

// unusedOnServer is unused of a server.
func (e *env) unusedOnServer(ctx context.Context, s backend.Server, o pruneOptions) ([]prunable, error) {
	all, err := s.Sandboxes(ctx, false)
	if err != nil {
		return nil, err
	}
	var errs []error
	var list []prunable
	for _, sb := range all {
		r := sb.Record
		used := r.CreatedAt
		if r.Served != nil && r.Served.StoppedAt.After(used) {
			used = r.Served.StoppedAt
		}
		if sb.Status == record.Running || time.Since(used) < o.Older {
			continue
		}
		review, err := s.Review(ctx, sb, nil, true, "")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		holds := ""
		if n := len(review.Files()); n > 0 {
			holds = plural(n, "change") + " not applied"
		} else if r.Home == record.HomeKeep {
			holds = "a kept home directory"
		}
		if holds != "" && !o.Force {
			continue
		}
		list = append(list, prunable{r.Name, holds, func() error {
			if o.Force {
				return e.destroyOnServer(ctx, s, sb)
			}
			if err := s.DestroyUnused(ctx, string(r.ID)); err != nil {
				return err
			}
			return e.forgetUpload(ctx, s, sb)
		}})
	}
	return list, errors.Join(errs...)
}
