package cli

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

type diffOptions struct {
	Stat       bool
	NameStatus bool
	JSON       bool
	Raw        bool
	Verbose    bool
}

func newDiff(e *env) *cobra.Command {
	var o diffOptions
	var w whichChanges
	cmd := &cobra.Command{
		Use:   "diff NAME[@SNAPSHOT] [NAME[@SNAPSHOT]] [PATH…]",
		Short: "Show what a sandbox changed",
		Long: `Show what a sandbox changed, as a unified diff in git's format. Files that could
act on the host once applied (hooks, .git/config, executables, editor and agent
configuration) come first and are marked. Installed packages, what git ignores and
git's own records are shown in groups, at the end; git's as commits, branches and
tags. --verbose shows each of their files, too. Control characters in names and
contents are shown escaped; --raw leaves those in contents as they are.

What was changed in a mount shows with --in MOUNT; --all shows the workspace first,
then each mount. With --json, --all prints one document for each.

Two names show how two sandboxes of one directory differ, from the first to the
second, also in a mount that both have. NAME@SNAPSHOT is a snapshot, NAME@now the
present state, NAME@source the directory without changes. One NAME@SNAPSHOT alone is
compared with the directory. A second argument that is a path in the sandbox is that
path.`,
		Example: `  agentfense diff fix
  agentfense diff fix@s1 fix
  agentfense diff try-a try-b --stat
  agentfense diff fix src --stat
  agentfense diff fix --raw | git apply --check
  agentfense diff fix --in data`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	changes := onChanges(e, &w, &o, runDiff)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		done := false
		err := e.on(cmd, func(ctx context.Context, b backend.Backend) (err error) {
			done, err = e.compare(ctx, b, args, &w, o)
			return err
		})
		if err != nil || done {
			return err
		}
		return changes(cmd, args)
	}
	w.register(e, cmd, "show")
	f := cmd.Flags()
	f.BoolVar(&o.Stat, "stat", false, "print a line for each file, with the number of changed lines")
	f.BoolVar(&o.NameStatus, "name-status", false, "print a letter and the path of each file: A added, M modified, D deleted, T type changed")
	f.BoolVar(&o.Raw, "raw", false, "do not escape control characters in contents, for git apply")
	jsonFlag(cmd, &o.JSON)
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "show each file that is in a group, too, as --name-status, --json and --raw do")
	cmd.MarkFlagsMutuallyExclusive("stat", "name-status", "json", "raw")
	cmd.MarkFlagsMutuallyExclusive("raw", "all")
	return cmd
}

func runDiff(ctx context.Context, e *env, c changesIn, paths []vpath.Path, o diffOptions) error {
	e.sayLost(c.Lost())
	p := e.progressUnless(o.JSON, "comparing")
	r, err := c.Review(ctx, paths, o.detail())
	// From here on the output says more, unless a person does not see it.
	if term.IsTerminal(int(e.stdout.Fd())) {
		p.stop()
	}
	defer p.stop()
	if err != nil {
		return err
	}
	defer r.Close()
	if c.all && c.mount != "" && len(r.Files()) == 0 && !o.JSON {
		return nil
	}
	err = e.showDiff(o, r, p)
	if err == nil && len(r.Files()) == 0 && !o.JSON {
		err = e.saySynced(ctx, c)
	}
	return err
}

// detail is how much of the changes is shown.
func (o *diffOptions) detail() backend.Detail {
	switch {
	case o.NameStatus:
		return backend.Names
	case o.Stat:
		return backend.Counts
	}
	return backend.Contents
}

// showDiff prints a review. What it shows with its content it stores, and notes the
// digest. Lists of names do not count as shown.
func (e *env) showDiff(o diffOptions, r *backend.Review, p *progress) error {
	switch {
	case o.JSON:
		digest, err := present.JSON(e.stdout, r.Review, r.Remember)
		if err == nil {
			err = r.Note(digest)
		}
		return err
	case o.NameStatus:
		return present.NameStatus(e.stdout, r.Review)
	case o.Stat:
		return present.Stat(e.stdout, r.Review, o.Verbose)
	}
	colour := e.getenv("NO_COLOR") == "" && term.IsTerminal(int(e.stdout.Fd()))
	if err := present.Patch(e.stdout, r.Review, present.PatchOptions{Raw: o.Raw, Colour: colour, Verbose: o.Verbose}); err != nil {
		return err
	}
	p.stop()
	digest, err := r.Remember()
	if err == nil {
		err = r.Note(digest)
	}
	if err == nil && len(r.Files()) > 0 {
		e.say("shown: %s", digest)
	}
	return err
}

func workspacePaths(args []string) ([]vpath.Path, error) {
	paths := make([]vpath.Path, len(args))
	for i, arg := range args {
		p, err := workspacePath(arg)
		if err != nil {
			return nil, err
		}
		paths[i] = p
	}
	return paths, nil
}

// shown is a path as listings print it: relative to the workspace, escaped.
func shown(p vpath.Path) string { return present.Written(p) }
