package cli

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// explainPaths adds to an error about paths of a sandbox what they are relative to, if one of args
// looks like a path of this host: it is relative to the current directory, or absolute.
func (e *env) explainPaths(ctx context.Context, b backend.Backend, name, mount string, args []string, err error) error {
	if !errdefs.Is(err, errdefs.Invalid) && !errdefs.Is(err, errdefs.NotFound) {
		return err
	}
	sb, sbErr := b.Sandbox(ctx, name)
	if sbErr != nil {
		return err
	}
	source := string(sb.Record.Source.Path)
	for _, m := range sb.Record.Mounts {
		if m.Name == mount && mount != "" {
			source = string(m.Source)
		}
	}
	for _, arg := range args {
		hint := pathHint(source, arg)
		if hint == "" {
			continue
		}
		explained := errdefs.New(errdefs.KindOf(err), "%w; %s", err, hint)
		if _, is := errors.AsType[usageError](err); is {
			return usageError{explained}
		}
		return explained
	}
	return err
}

// pathHint says what paths of changes are relative to, if arg seems to be a path of this host. It
// names the path that is meant, if that is below source, which is "" if it is not on this host.
func pathHint(source, arg string) string {
	relativeTo := "paths are relative to the source"
	if source != "" {
		relativeTo += " " + vpath.Escape(source)
	}
	meant := ""
	if source != "" {
		meant = belowSource(source, arg)
	}
	switch {
	case meant != "" && meant != path.Clean(strings.TrimLeft(arg, "/")):
		return relativeTo + ": write " + vpath.Escape(meant) + " for " + vpath.Escape(arg)
	case arg == ".." || strings.HasPrefix(arg, "../"):
		return relativeTo + ", not to the current directory"
	}
	return ""
}

// belowSource returns a path of this host relative to source, or "" if it is not below.
func belowSource(source, arg string) string {
	abs, err := filepath.Abs(arg)
	if err != nil || arg == "" || strings.Contains(arg, ":/") { // a path of a mount
		return ""
	}
	if rel := insideSource(source, abs); !filepath.IsAbs(rel) {
		return rel
	}
	return ""
}
