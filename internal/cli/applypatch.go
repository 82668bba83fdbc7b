package cli

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/pick"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// partFlags are the flags that choose a part of a file.
func partFlags(cmd *cobra.Command, o *applyOptions) {
	cmd.Flags().BoolVarP(&o.Patch, "patch", "p", false, "ask hunk by hunk what to apply; needs a terminal")
	cmd.Flags().StringArrayVar(&o.Hunks, "hunk", nil, "apply the change or hunk with this `ID`, which diff --json shows; repeatable")
	for _, other := range []string{"hunk", "reviewed", "latest", "all", "json"} {
		cmd.MarkFlagsMutuallyExclusive("patch", other)
	}
	cmd.MarkFlagsMutuallyExclusive("hunk", "all")
	cmd.Flags().StringVar(&o.Branch, "to-branch", "", "commit to this new `BRANCH` of the source's git repository; the changes stay in the sandbox")
	cmd.Flags().StringVarP(&o.Message, "message", "m", "", "`TEXT` of the commit of --to-branch")
	for _, other := range []string{"to", "rebase", "all"} {
		cmd.MarkFlagsMutuallyExclusive("to-branch", other)
	}
}

// check refuses flags that do not fit together.
func (o *applyOptions) check(paths []vpath.Path) error {
	switch {
	case len(o.Hunks) > 0 && len(paths) > 0:
		return usageError{errdefs.New(errdefs.Invalid, "--hunk and paths exclude each other; an id names its path")}
	case o.Message != "" && o.Branch == "":
		return usageError{errdefs.New(errdefs.Invalid, "--message is the message of a commit: give --to-branch, too")}
	}
	return nil
}

// pickHunks asks hunk by hunk what to apply, and makes o select it, as it was shown. It reports
// whether anything was chosen.
func (e *env) pickHunks(ctx context.Context, c changesIn, o *backend.ApplyOptions) (chosen bool, err error) {
	if !term.IsTerminal(int(e.stdin.Fd())) || !term.IsTerminal(int(e.stdout.Fd())) {
		return false, errdefs.New(errdefs.Precondition, "apply --patch: needs a terminal; without one, use --hunk with the ids of agentfense diff %s --json", c.Ref())
	}
	r, err := c.Review(ctx, o.Paths, backend.Contents)
	if err != nil {
		return false, err
	}
	defer r.Close()
	o.Hunks, err = pick.Ask(r.Review, pick.Options{In: e.stdin, Out: e.stdout, Colour: e.getenv("NO_COLOR") == ""})
	o.Paths = nil
	if err != nil {
		return false, err
	}
	if len(o.Hunks) == 0 {
		e.say("nothing was chosen; all changes are still in the sandbox")
		return false, nil
	}
	o.Reviewed, err = r.Remember()
	return true, err
}

// sayHunksLeftOut says what to do about hunks of files that had changed since they were shown.
func (e *env) sayHunksLeftOut(ref string, n int) {
	if n > 0 {
		e.say("left out %s, changed since shown; to see the current state and choose again: agentfense apply %s -p", plural(n, "path"), ref)
	}
}
