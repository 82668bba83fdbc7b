package cli

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// compared are two states and where they are compared.
type compared struct {
	earlier, later string // as arguments name them
	words          []string
}

// compare shows how the two states that args name differ. It returns false, and does nothing, if
// args name one sandbox and paths.
func (e *env) compare(ctx context.Context, b backend.Backend, args []string, w *whichChanges, o diffOptions) (bool, error) {
	c, err := e.statesOf(ctx, b, args, w.mount())
	if err != nil || c == nil {
		return err != nil, err // an error may say that another process has shown it
	}
	if w.all && len(c.words) > 0 {
		return true, errAllAndPaths()
	}
	name, _, err := snapshot.SplitRef(c.later)
	if err != nil {
		return true, err
	}
	mounts, paths, err := w.choose(ctx, b, name, c.words)
	if err != nil {
		return true, e.explainPaths(ctx, b, name, w.mount(), c.words, err)
	}
	var failed []error
	for _, mount := range mounts {
		err := e.compareIn(ctx, b, c, mount, paths, o)
		failed = append(failed, e.explainPaths(ctx, b, name, mount, c.words, err))
	}
	if len(failed) == 1 {
		return true, failed[0]
	}
	return true, errors.Join(failed...)
}

// compareIn compares in the workspace, or in a mount.
func (e *env) compareIn(ctx context.Context, b backend.Backend, c *compared, mount string, paths []vpath.Path, o diffOptions) error {
	p := e.progressUnless(o.JSON, "comparing")
	defer p.stop()
	r, err := b.Compare(ctx, c.earlier, c.later, mount, paths, e.args)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it only read
	p.stop()
	return e.showCompared(r.Review, o)
}

// statesOf returns the two states and the words after them that args name; nil for one sandbox and
// its paths.
func (e *env) statesOf(ctx context.Context, b backend.Backend, args []string, mount string) (*compared, error) {
	first := args[0]
	name, ref, err := snapshot.SplitRef(first)
	if err != nil {
		return nil, err
	}
	if len(args) > 1 {
		second, err := e.isState(ctx, b, first, args[1], mount)
		if err != nil {
			return nil, err
		}
		if second {
			return &compared{first, args[1], args[2:]}, nil
		}
	}
	if ref == "" {
		return nil, nil
	}
	return &compared{name + "@" + snapshot.Source, first, args[1:]}, nil
}

// isState reports whether word names a state, and not a path in the sandbox first.
func (e *env) isState(ctx context.Context, b backend.Backend, first, word, mount string) (bool, error) {
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
	isPath, err := e.isChanged(ctx, b, first, word, mount)
	return !isPath, err
}

// isChanged reports whether the sandbox changed something at or below a path.
func (e *env) isChanged(ctx context.Context, b backend.Backend, name, path, mount string) (bool, error) {
	p, err := workspacePath(path)
	if err != nil {
		return false, nil //nolint:nilerr // it is no path
	}
	c, err := b.Changes(ctx, name, mount, e.args)
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
