package record

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
)

// What commands write in a mount goes to a delta of that mount. InMount returns a Sandbox that
// stands for it, so that all that reviews, applies and discards changes works with mounts too.

// mountsDir is the directory in the sandbox's that has a directory for each mount with a delta.
const mountsDir = "mounts"

// inMount is what a Sandbox that stands for a mount has beside that mount's record.
type inMount struct {
	name      string // of the mount
	workspace HostPath
}

// InMount returns the sandbox with a mount in place of its workspace: the source, the rules and
// the changes are the mount's. Its record cannot be updated. The name "" is the workspace's.
// Errors: NotFound for a name that no mount has; Unsupported for a mount without a delta.
func (s *Sandbox) InMount(name string) (*Sandbox, error) {
	if name == "" {
		return s, nil
	}
	m, err := s.MountNamed(name)
	switch {
	case err != nil:
		return nil, err
	case !m.HasDelta():
		return nil, errdefs.New(errdefs.Unsupported, "sandbox %s: nothing can be written in the mount %s", s.Name(), name)
	}
	return s.in(m), nil
}

// MountNamed returns the mount with a name. Errors: NotFound.
func (s *Sandbox) MountNamed(name string) (Mount, error) {
	i := slices.IndexFunc(s.Stored.Mounts, func(m Mount) bool { return m.Name == name })
	if i < 0 {
		return Mount{}, errdefs.New(errdefs.NotFound, "sandbox %s: no mount has the name %q", s.Name(), name)
	}
	return s.Stored.Mounts[i], nil
}

func (s *Sandbox) in(m Mount) *Sandbox {
	r := s.Record()
	r.Source, r.Workspace = sourceOf(m), string(m.Target)
	r.Rules, r.EarlierRules = slices.Clone(m.Rules), slices.Clone(m.EarlierRules)
	r.Marks, r.Ignore, r.Scratch, r.Git, r.Mounts = nil, nil, nil, "", nil // of the workspace
	r.Paths = r.OfMount(m.Name)
	return &Sandbox{Home: s.Home, Stored: r, part: &inMount{m.Name, s.Stored.Source.Path}}
}

// sourceOf returns the source of a mount with a delta.
func sourceOf(m Mount) Source { return Source{Path: m.Source, Dev: m.Dev, Ino: m.Ino, Born: m.Born} }

// Mount returns the name of the mount for which s stands; "" for the workspace.
func (s *Sandbox) Mount() string {
	if s.part == nil {
		return ""
	}
	return s.part.name
}

// Ref returns how a command names the sandbox and its changes: "NAME", or "NAME --in MOUNT".
func (s *Sandbox) Ref() string {
	if s.part == nil {
		return s.Name()
	}
	return s.Name() + " --in " + s.part.name
}

// Parts returns s, and what InMount returns for each mount with a delta, in their order.
func (s *Sandbox) Parts() []*Sandbox {
	parts := []*Sandbox{s}
	for _, m := range s.Stored.Mounts {
		if m.HasDelta() {
			parts = append(parts, s.in(m))
		}
	}
	return parts
}

// ChangesDir returns the directory with the layers, the apply lock and what was reviewed: Dir, or
// a directory of the mount.
func (s *Sandbox) ChangesDir() string {
	if s.part == nil {
		return s.Dir()
	}
	return filepath.Join(s.Dir(), mountsDir, s.part.name)
}

// Reserved returns the paths in source that the sandbox may never access: those of
// Home.Reserved, and in a mount also the source of the workspace, which has its own rules.
func (s *Sandbox) Reserved(source Source) ([]vpath.Path, error) {
	reserved, err := s.Home.Reserved(source)
	if err != nil || s.part == nil {
		return reserved, err
	}
	return ReserveWorkspace(reserved, source.Path, s.part.workspace)
}

// PlacesIn returns the paths in a mount's view at which the workspace and other mounts are.
func (r *Record) PlacesIn(m Mount) []vpath.Path {
	targets := []string{r.Workspace}
	for _, other := range r.Mounts {
		targets = append(targets, string(other.Target))
	}
	return mountspec.PlacesIn(string(m.Target), targets)
}

// ReserveWorkspace appends the path of workspace to reserved, if it is in source.
func ReserveWorkspace(reserved []vpath.Path, source, workspace HostPath) ([]vpath.Path, error) {
	if !safefs.IsBelow(string(workspace), string(source)) {
		return reserved, nil
	}
	p, err := vpath.Parse(strings.TrimPrefix(string(workspace), string(source)))
	return append(reserved, p), err
}

// makeChangesDirs makes in dir, the sandbox's, the directories of mounts with a delta, so that
// they can be read before the sandbox runs.
func makeChangesDirs(dir string, mounts []Mount) error {
	for _, m := range mounts {
		if !m.HasDelta() {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, mountsDir, m.Name, layersDir), 0o700); err != nil {
			return HostError("mount "+m.Name, err)
		}
	}
	return nil
}

// ForgetMount removes the delta of the mount for which s stands, and what was shown of it, so that
// another mount may have its name. The caller has the sandbox's lock.
func (s *Sandbox) ForgetMount() error {
	if s.part == nil {
		return errdefs.New(errdefs.Internal, "sandbox %s: the workspace is no mount", s.Name())
	}
	if err := removeTree(s.ChangesDir()); err != nil {
		return err
	}
	if err := os.MkdirAll(s.LayersDir(), 0o700); err != nil { // the record may still name the mount
		return HostError("mount "+s.Mount(), err)
	}
	return nil
}

// Rebase stores the identity of the source now, which has the same path.
func (s *Sandbox) Rebase(now Source) error {
	whole := &Sandbox{Home: s.Home, Stored: s.Stored}
	err := whole.updateSource(func(r *Record) error {
		if s.part == nil {
			r.Source = now
			return nil
		}
		for i := range r.Mounts {
			if m := &r.Mounts[i]; m.Name == s.part.name {
				m.Dev, m.Ino, m.Born = now.Dev, now.Ino, now.Born
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case s.part == nil:
		s.Stored = whole.Stored
	default:
		s.Stored.Source = now
	}
	return nil
}
