package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/mounted"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// mounts reads what --mount gives a sandbox with the workspace. Errors: NotFound for a path
// that is not there; Invalid for what must never be shown inside: the state directory,
// sockets, and places that the sandbox makes itself.
func (b *Backend) mounts(n backend.NewSandbox, workspace string) ([]record.Mount, error) {
	var specs []mountspec.Spec
	var places []mountspec.Place
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
			return nil, errdefs.New(errdefs.NotFound, "--mount %q: %w", text, explainSource(s.Source, err))
		}
		if s.Target == "" {
			if s.Target, err = filepath.Abs(s.Source); err != nil {
				return nil, errdefs.New(errdefs.Invalid, "--mount %q: %w", text, err)
			}
		}
		places = append(places, mountspec.Place{Target: s.Target, Mode: s.Mode})
		if err := errors.Join(checkMount(b.home, real, s.Mode), mountspec.CheckPlaces(workspace, places)); err != nil {
			return nil, refuse(errdefs.New(errdefs.Invalid, "%w", err))
		}
		m := record.Mount{Source: record.HostPath(real), Target: record.HostPath(s.Target), Mode: s.Mode}
		if m.Rules, err = s.Rules(load); err == nil {
			err = mounted.Identify(b.home, &m, mounts)
		}
		if err != nil {
			return nil, refuse(err)
		}
		specs, mounts = append(specs, s), append(mounts, m)
	}
	if err := mountspec.Names(specs); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "--mount: %w", err)
	}
	for i := range mounts {
		mounts[i].Name = specs[i].Name
	}
	return mounts, checkInner(mounts, workspace)
}

// checkInner refuses a mount in which the place of another one, or of the workspace, does not
// exist: nothing can be mounted there. Errors: Invalid.
func checkInner(mounts []record.Mount, workspace string) error {
	targets := []string{workspace}
	for _, m := range mounts {
		targets = append(targets, string(m.Target))
	}
	for _, m := range mounts {
		for _, place := range mountspec.PlacesIn(string(m.Target), targets) {
			path := filepath.Join(string(m.Source), place.Rel())
			if real, err := filepath.EvalSymlinks(path); err != nil || real != path {
				return errdefs.New(errdefs.Invalid, "--mount %s: another mount, or the workspace, is at %s in it, and there it has no such directory or a symbolic link; make the directory, or leave this mount out", m.Source, place)
			}
		}
	}
	return nil
}

// replaceMounts prepares the sandbox for other mounts. A mount with a delta that has the same
// name and the same source keeps it. The others must have no changes, and what is kept for them is
// removed. The caller releases the sandbox's lock when the mounts are stored. Errors:
// Precondition.
func replaceMounts(sb *record.Sandbox, mounts []record.Mount) (release func(), err error) {
	lock, err := sb.TryLock(record.PurposeClear)
	if err != nil {
		return nil, err
	}
	var gone []*record.Sandbox
	for _, part := range sb.Parts()[1:] {
		if keepDelta(part.Record(), part.Mount(), mounts) {
			continue
		}
		if err = refuseLoss(part); err != nil {
			break
		}
		gone = append(gone, part)
	}
	for _, part := range gone {
		if err == nil {
			err = part.ForgetMount()
		}
	}
	if err != nil {
		lock.Release()
		return nil, err
	}
	return lock.Release, nil
}

// keepDelta gives the mount with the name and the source of was, if one has both, what the delta
// needs: the identity of the source on which it was made, and the earlier rules. It reports whether
// there is one. Whether the source is still that one is for settleMounts to find out.
func keepDelta(was record.Record, name string, mounts []record.Mount) bool {
	for i := range mounts {
		m := &mounts[i]
		if m.Name == name && m.HasDelta() && m.Source == was.Source.Path {
			m.Dev, m.Ino, m.Born = was.Source.Dev, was.Source.Ino, was.Source.Born
			was.SetRules(m.Rules, "")
			m.EarlierRules = was.EarlierRules
			return true
		}
	}
	return false
}

// refuseLoss refuses a mount with changes. Errors: Precondition.
func refuseLoss(part *record.Sandbox) error {
	holds, err := isClosed(part)
	if err == nil && !holds {
		holds, err = review.HasChanges(part)
	}
	if err == nil && holds {
		err = errdefs.New(errdefs.Precondition, "sandbox %s: the mount %s has changes that would be lost; keep it, or: agentfense apply %[3]s · agentfense discard %[3]s", part.Name(), part.Mount(), part.Ref())
	}
	return err
}

// explainSource says what is wrong with a source that does not exist.
func explainSource(source string, err error) error {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case strings.Contains(source, ":"):
		return errdefs.New(errdefs.NotFound, "%s does not exist on this host; with options, the place inside is dst=DST", source)
	}
	return errdefs.New(errdefs.NotFound, "%s does not exist on this host", source)
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
		return errdefs.New(errdefs.Invalid, "it is a file, which can only be read; mount its directory, or leave the mode out")
	case safefs.IsBelow(source, home.Dir()), safefs.IsBelow(home.Dir(), source) && !mode.HasRules(): // rules hide it
		return errdefs.New(errdefs.Invalid, "it would show agentfense's own state directory")
	}
	return mountspec.CheckSource(source)
}
