package local

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// mounts reads what --mount gives a sandbox with the workspace. Errors: NotFound for a path
// that is not there; Invalid for what must never be shown inside: the state directory,
// sockets, and places that the sandbox makes itself.
func (b *Backend) mounts(n backend.NewSandbox, workspace string) ([]record.Mount, error) {
	var specs []mountspec.Spec
	var targets []string
	var mounts []record.Mount
	load := func(file string) ([]policy.Rule, error) { return n.MountRules(file, workspace) }
	for _, text := range n.Mounts {
		refuse := func(err error) error { return errdefs.New(errdefs.KindOf(err), "--mount %q: %w", text, err) }
		s, err := mountspec.Parse(text)
		if err != nil {
			return nil, refuse(err)
		}
		real, err := realPath(s.Source)
		if err != nil {
			return nil, errdefs.New(errdefs.NotFound, "--mount %q: %w", text, err)
		}
		if s.Target == "" {
			if s.Target, err = filepath.Abs(s.Source); err != nil {
				return nil, errdefs.New(errdefs.Invalid, "--mount %q: %w", text, err)
			}
		}
		targets = append(targets, s.Target)
		if err := errors.Join(checkMount(b.home, real, s.Mode), mountspec.CheckPlaces(workspace, targets)); err != nil {
			return nil, refuse(errdefs.New(errdefs.Invalid, "%w", err))
		}
		rules, err := s.Rules(load)
		if err != nil {
			return nil, refuse(err)
		}
		specs = append(specs, s)
		mounts = append(mounts, record.Mount{Source: record.HostPath(real), Target: record.HostPath(s.Target), Mode: s.Mode, Rules: rules})
	}
	if err := mountspec.Names(specs); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--mount: %w", err)
	}
	for i := range mounts {
		mounts[i].Name = specs[i].Name
	}
	return mounts, nil
}

func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// checkMount refuses a source that no sandbox may see.
func checkMount(home *record.Home, source string, mode mountspec.Mode) error {
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return err
	case !info.IsDir() && !info.Mode().IsRegular():
		return errdefs.New(errdefs.Invalid, "neither a directory nor a file")
	case !info.IsDir() && mode.HasRules():
		return errdefs.New(errdefs.Invalid, "rules are for a directory, and this is a file: leave them out, or mount its directory")
	case safefs.IsBelow(source, home.Dir()) || safefs.IsBelow(home.Dir(), source):
		return errdefs.New(errdefs.Invalid, "it would show agentfense's own state directory")
	}
	return mountspec.CheckSource(source)
}
