package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
)

func rebaseFlag(cmd *cobra.Command, rebase *bool) {
	cmd.Flags().BoolVar(rebase, "rebase", false, "if the source was deleted and created again, use the new directory")
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
