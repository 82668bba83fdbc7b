package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
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
	cmd := &cobra.Command{
		Use:   "diff NAME [PATH…]",
		Short: "Show what a sandbox changed",
		Long: `Show what a sandbox changed, as a unified diff in git's format. Files that could
act on the host once applied (hooks, .git/config, executables, editor and agent
configuration) come first and are marked. Installed packages, what git ignores and
git's own records are shown in groups, at the end; git's as commits, branches and
tags. --verbose shows each of their files, too. Control characters in names and
contents are shown escaped; --raw leaves those in contents as they are.`,
		Example: `  agentfense diff fix
  agentfense diff fix src --stat
  agentfense diff fix --raw | git apply --check`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	cmd.RunE = onChanges(e, &o, runDiff, runServerDiff, "stat", "name-status", "json", "raw", "verbose")
	f := cmd.Flags()
	f.BoolVar(&o.Stat, "stat", false, "print a line for each file, with the number of changed lines")
	f.BoolVar(&o.NameStatus, "name-status", false, "print a letter and the path of each file: A added, M modified, D deleted, T type changed")
	f.BoolVar(&o.Raw, "raw", false, "do not escape control characters in contents, for git apply")
	jsonFlag(cmd, &o.JSON)
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "show each file that is in a group, too, as --name-status, --json and --raw do")
	cmd.MarkFlagsMutuallyExclusive("stat", "name-status", "json", "raw")
	return cmd
}

// onChanges is what a verb about changes runs, here or on a server.
func onChanges[O any](e *env, o *O,
	here func(context.Context, *env, string, []vpath.Path, O) error,
	there func(context.Context, *env, backend.Server, string, []vpath.Path, O) error, flags ...string,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		paths, err := changedPaths(args[1:])
		if err != nil {
			return err
		}
		return e.dispatch(cmd,
			func() error { return here(cmd.Context(), e, args[0], paths, *o) },
			func(ctx context.Context, s backend.Server) error { return there(ctx, e, s, args[0], paths, *o) },
			flags...)
	}
}

func runDiff(ctx context.Context, e *env, name string, paths []vpath.Path, o diffOptions) error {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	if done, err := e.asOwner(ctx, sb, e.args); done || err != nil {
		return err
	}
	e.sayLost(sb)
	base, err := shownBefore(ctx, sb, paths, o)
	if err != nil {
		return err
	}
	return e.showDiff(o, func() (*review.Review, error) { return review.Open(sb, paths...) }, base, func(digest string) error { return manifest.SetLastShown(sb, digest) })
}

// shownBefore returns the digest of what was shown before a part is, "" for
// nothing. Where nothing was shown and nothing runs, that is everything.
func shownBefore(ctx context.Context, sb *record.Sandbox, paths []vpath.Path, o diffOptions) (string, error) {
	if len(paths) == 0 || o.Stat || o.NameStatus {
		return "", nil
	}
	last, err := manifest.LastShown(sb)
	if err != nil || last != "" {
		return last, err
	}
	live, err := client(ctx, sb)
	if err != nil || live != nil {
		return "", err
	}
	return manifest.StoreNow(sb)
}

func runServerDiff(ctx context.Context, e *env, s backend.Server, name string, paths []vpath.Path, o diffOptions) error {
	sb, err := s.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	base, err := e.shownBeforeOnServer(ctx, s, sb, paths, o)
	if err != nil {
		return err
	}
	waits := true
	var r *review.Review
	compare := func() (*review.Review, error) {
		var err error
		r, err = s.Review(ctx, sb, paths, o.NameStatus, base.Digest)
		if base.Digest != "" && errdefs.Is(err, errdefs.NotFound) { // base is kept no longer
			base = backend.Reviewed{}
			r, err = s.Review(ctx, sb, paths, o.NameStatus, "")
		}
		waits = err != nil || len(r.Files()) > 0
		return r, err
	}
	err = e.showDiff(o, compare, "", func(digest string) error {
		shown, err := apply.ShownOf(r)
		if err != nil {
			return err
		}
		return e.noteShown(sb, backend.Reviewed{Digest: digest, Shown: shown.Beside(base.Shown, paths)})
	})
	if err == nil && !waits && !o.JSON {
		err = e.saySynced(ctx, s, sb)
	}
	return err
}

// showDiff prints what compare finds. What it shows with its content it stores
// beside what base has, and notes the digest. Lists of names do not count as
// shown.
func (e *env) showDiff(o diffOptions, compare func() (*review.Review, error), base string, note func(digest string) error) error {
	p := e.progressUnless(o.JSON, "comparing")
	r, err := compare()
	// From here on the output says more, unless a person does not see it.
	if term.IsTerminal(int(e.stdout.Fd())) {
		p.stop()
	}
	defer p.stop()
	if err != nil {
		return err
	}
	defer r.Close()
	remember := func() (string, error) {
		digest, err := r.Remember(base, r.Files())
		if errdefs.Is(err, errdefs.NotFound) { // base is kept no longer
			digest, err = r.Remember("", r.Files())
		}
		return digest, err
	}
	switch {
	case o.JSON:
		digest, err := present.JSON(e.stdout, r, remember)
		if err == nil {
			err = note(digest)
		}
		return err
	case o.NameStatus:
		return present.NameStatus(e.stdout, r)
	case o.Stat:
		return present.Stat(e.stdout, r, o.Verbose)
	}
	colour := e.getenv("NO_COLOR") == "" && term.IsTerminal(int(e.stdout.Fd()))
	if err := present.Patch(e.stdout, r, present.PatchOptions{Raw: o.Raw, Colour: colour, Verbose: o.Verbose}); err != nil {
		return err
	}
	p.stop()
	digest, err := remember()
	if err == nil {
		err = note(digest)
	}
	if err == nil && len(r.Files()) > 0 {
		e.say("shown: %s", digest)
	}
	return err
}

// changedPaths reads which changes are meant. An empty word, as an unset variable
// leaves one, is no path: read as the root it would be all of them.
func changedPaths(args []string) ([]vpath.Path, error) {
	if slices.Contains(args, "") {
		return nil, usageError{vpath.ErrEmpty}
	}
	return workspacePaths(args)
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
