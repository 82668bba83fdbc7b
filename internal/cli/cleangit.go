package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// git reads --git. Errors: Invalid, also with a limit of the disk.
func (o *sandboxOptions) git(cmd *cobra.Command, l record.Limits) (cleangit.Mode, error) {
	mode, err := cleangit.ParseMode(o.Git)
	if err == nil {
		err = mode.Check(l.DiskBytes > 0)
	}
	if err != nil && cmd.Flags().Changed("git") {
		err = errdefs.New(errdefs.Invalid, "--git: %w", err)
	}
	return mode, err
}

// sayClean says that git inside has a clean repository.
func (e *env) sayClean(sb backend.Sandbox) {
	if mode := sb.Record.Git; mode.IsClean() {
		e.say("git inside has %s", cleanText(mode))
	}
}

// cleanText describes a clean repository.
func cleanText(mode cleangit.Mode) string {
	_, depth, _ := strings.Cut(string(mode), ":")
	last := "the last " + depth + " commits"
	switch depth {
	case "all":
		last = "all commits"
	case "1":
		last = "the last commit"
	}
	return "a clean repository (--git=" + string(mode) + "): " + last + " without what the policy hides; its commits are not part of diff: agentfense commits lists them"
}

// sayUnsaved says that commits were made in the clean repository of a sandbox, and what to do.
func (e *env) sayUnsaved(ctx context.Context, b backend.Backend, r record.Record, toGo bool) error {
	if !r.Git.IsClean() {
		return nil
	}
	n, err := b.UnsavedBranches(ctx, r.Name)
	switch {
	case err != nil || n == 0:
		return err
	case toGo:
		e.say("thrown away with the sandbox: the commits of %s", branches(n))
	default:
		e.say("%[1]s: commits on %[2]s · look: agentfense commits %[1]s · keep: agentfense apply %[1]s --commits [--to-branch BRANCH]", r.Name, branches(n))
	}
	return nil
}

func branches(n int) string {
	if n == 1 {
		return "1 branch"
	}
	return fmt.Sprintf("%d branches", n)
}
