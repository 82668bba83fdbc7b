package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// compare shows how the two states that args name differ. It returns false, and does nothing, if
// args name one sandbox and paths.
func (e *env) compare(ctx context.Context, cmd *cobra.Command, b backend.Backend, args []string, o diffOptions) (bool, error) {
	earlier, later, paths, err := e.statesOf(ctx, b, args)
	if err != nil || earlier == "" {
		return false, err
	}
	for _, flag := range []string{"in", "all"} {
		if cmd.Flags().Changed(flag) {
			return true, usageError{errdefs.New(errdefs.Invalid, "diff: --%s: two states are compared in the workspace", flag)}
		}
	}
	at, err := changedPaths(paths)
	if err != nil {
		return true, err
	}
	p := e.progressUnless(o.JSON, "comparing")
	defer p.stop()
	r, err := b.Compare(ctx, earlier, later, at, e.args)
	if err != nil {
		return true, err
	}
	defer func() { _ = r.Close() }() // it only read
	p.stop()
	return true, e.showCompared(r.Review, o)
}

// statesOf returns the two states and the paths that args name; "" for one sandbox and its paths.
func (e *env) statesOf(ctx context.Context, b backend.Backend, args []string) (earlier, later string, paths []string, err error) {
	first := args[0]
	name, ref, err := snapshot.SplitRef(first)
	if err != nil {
		return "", "", nil, err
	}
	if len(args) > 1 {
		second, err := isState(ctx, b, first, args[1])
		if err != nil {
			return "", "", nil, err
		}
		if second {
			return first, args[1], args[2:], nil
		}
	}
	if ref == "" {
		return "", "", nil, nil
	}
	return name + "@" + snapshot.Source, first, args[1:], nil
}

// isState reports whether word names a state, and not a path in the sandbox first.
func isState(ctx context.Context, b backend.Backend, first, word string) (bool, error) {
	name, ref, err := snapshot.SplitRef(word)
	if err != nil || record.CheckName(name) != nil || strings.ContainsRune(ref, '/') {
		return false, nil //nolint:nilerr // it can only be a path
	}
	if _, err := b.Sandbox(ctx, name); err != nil {
		if errdefs.Is(err, errdefs.NotFound) {
			return false, nil
		}
		return false, err
	}
	if ref != "" || strings.Contains(first, "@") {
		return true, nil
	}
	isPath, err := isChanged(ctx, b, first, word)
	return !isPath, err
}

// isChanged reports whether the sandbox changed something at or below a path.
func isChanged(ctx context.Context, b backend.Backend, name, path string) (bool, error) {
	p, err := workspacePath(path)
	if err != nil {
		return false, nil //nolint:nilerr // it is no path
	}
	c, err := b.Changes(ctx, name, "", nil)
	if err != nil {
		return false, err
	}
	r, err := c.Review(ctx, []vpath.Path{p}, backend.Names)
	if errdefs.Is(err, errdefs.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, r.Close()
}

// showCompared prints how two states differ.
func (e *env) showCompared(r *review.Review, o diffOptions) error {
	switch {
	case o.JSON:
		_, err := present.JSON(e.stdout, r, func() (string, error) { return "", nil })
		return err
	case o.NameStatus:
		return present.NameStatus(e.stdout, r)
	case o.Stat:
		return present.Stat(e.stdout, r, o.Verbose)
	}
	colour := e.getenv("NO_COLOR") == "" && term.IsTerminal(int(e.stdout.Fd()))
	return present.Patch(e.stdout, r, present.PatchOptions{Raw: o.Raw, Colour: colour, Verbose: o.Verbose})
}
