package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func rebaseFlag(cmd *cobra.Command, rebase *bool) {
	cmd.Flags().BoolVar(rebase, "rebase", false, "if the source was deleted and created again, use the new directory")
}

// settleSource sees to it that the sandbox's source is there: if another directory
// is at its path, it becomes the source if the person says so.
func (e *env) settleSource(ctx context.Context, sb *record.Sandbox, rebase bool) error {
	replaced, why := sb.SourceLost()
	if why == nil {
		return nil
	}
	if c, err := client(ctx, sb); err != nil || c != nil {
		return err // it runs, and has the old one open
	}
	const elsewhere = "agentfense diff %[2]s shows what the sandbox holds, agentfense apply %[2]s --to DIR brings it into another directory"
	if !replaced {
		return errdefs.New(errdefs.KindOf(why), "%[1]w; "+elsewhere, why, sb.Name())
	}
	if !rebase && e.canAsk() {
		e.say("%s", why)
		rebase = e.confirm("Take the directory that is there now?")
	}
	if !rebase {
		return errdefs.New(errdefs.KindOf(why), "%[1]w; --rebase takes it, "+elsewhere, why, sb.Name())
	}
	return apply.Rebase(sb)
}

// rebasing does something with a sandbox. If another directory is in the place of its
// source, the person may say that it becomes the source, and it is done again.
func (e *env) rebasing(rebase bool, do func(rebase bool) error) error {
	err := do(rebase)
	replaced, is := errors.AsType[*backend.ReplacedError](err)
	if !is || !e.canAsk() {
		return err
	}
	e.say("%s", replaced.Why)
	if !e.confirm("Take the directory that is there now?") {
		return err
	}
	return do(true)
}

// sayLost says that what follows is shown without the sandbox's source, if so.
func (e *env) sayLost(why error) {
	if why != nil {
		e.say("%s; shown is what the sandbox holds and what was recorded", why)
	}
}
