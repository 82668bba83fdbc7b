package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
)

// changesIn are the changes of a sandbox in its workspace, or in one of its mounts.
type changesIn struct {
	backend.Changes
	mount string // "" for the workspace
	all   bool   // one of several that are shown
}

// shown is a path as text has it.
func (c changesIn) shown(p vpath.Path) string { return present.WrittenIn(c.mount, p) }

// shownAll is shown of several.
func (c changesIn) shownAll(paths []vpath.Path) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = c.shown(p)
	}
	return out
}

// where ends a sentence about changes in a mount, if they are not the workspace's.
func (c changesIn) where() string {
	if c.mount == "" {
		return ""
	}
	return " in " + c.mount
}

// whichChanges are the flags that say which changes a verb is about.
type whichChanges struct {
	in  string
	all bool
}

func (w *whichChanges) register(e *env, cmd *cobra.Command, verb string) {
	cmd.Flags().StringVar(&w.in, "in", "", verb+" the changes in this `MOUNT`, not those of the workspace")
	cmd.Flags().BoolVar(&w.all, "all", false, verb+" the changes of the workspace and of every mount")
	cmd.RegisterFlagCompletionFunc("in", e.completeMounts)
	cmd.MarkFlagsMutuallyExclusive("in", "all")
}

// mount is the mount of --in, "" for the workspace.
func (w *whichChanges) mount() string {
	if w.in == mountspec.Workspace {
		return ""
	}
	return w.in
}

// onChanges is what a verb about changes runs.
func onChanges[O any](e *env, w *whichChanges, o *O, run func(context.Context, *env, changesIn, []vpath.Path, O) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if w.all && len(args) > 1 {
			return errAllAndPaths()
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			mounts, paths, err := w.choose(ctx, b, args[0], args[1:])
			if err != nil {
				return e.explainPaths(ctx, b, args[0], w.mount(), args[1:], err)
			}
			var failed []error
			var exit error // of what has said itself why
			for _, mount := range mounts {
				c, err := b.Changes(ctx, args[0], mount, e.args)
				if err == nil {
					err = run(ctx, e, changesIn{c, mount, w.all}, paths, *o)
				}
				if _, is := errors.AsType[exitError](err); is {
					exit = err
				} else if err != nil {
					failed = append(failed, e.explainPaths(ctx, b, args[0], mount, args[1:], err))
				}
			}
			if len(failed) == 0 {
				return exit
			}
			return errors.Join(failed...)
		})
	}
}

// errAllAndPaths says that paths and --all exclude each other.
func errAllAndPaths() error {
	return usageError{errdefs.New(errdefs.Invalid, "--all is about all changes; leave the paths out, or --all")}
}

// choose returns the mounts that are meant, "" for the workspace, and the paths in them.
func (w *whichChanges) choose(ctx context.Context, b backend.Backend, name string, args []string) (mounts []string, paths []vpath.Path, err error) {
	if w.all {
		sb, err := b.Sandbox(ctx, name)
		mounts = []string{""}
		for _, m := range sb.Record.Mounts {
			if m.IsWritable() {
				mounts = append(mounts, m.Name)
			}
		}
		return mounts, nil, err
	}
	in := w.mount()
	mount, args, err := splitMounts(ctx, b, name, args)
	switch {
	case err != nil:
		return nil, nil, err
	case mount == "":
		mount = in
	case w.in != "" && mount != in:
		return nil, nil, usageError{errdefs.New(errdefs.Invalid, "--in %s and a path in %s exclude each other", w.in, mount)}
	}
	paths, err = changedPaths(args)
	return []string{mount}, paths, err
}

// changedPaths reads which changes are meant. An empty word, as an unset variable
// leaves one, is no path: read as the root it would be all of them.
func changedPaths(args []string) ([]vpath.Path, error) {
	if slices.Contains(args, "") {
		return nil, usageError{vpath.ErrEmpty}
	}
	return workspacePaths(args)
}
