// Package mounted opens what a sandbox sees in one of its mounts: the source and the delta, if
// the mount has one, under the rules of the mount. It promises that no mount shows what is the
// sandbox's own or agentfense's: the workspace's source and the state directory.
package mounted

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Mount is an open mount.
type Mount struct {
	// File is the host path of a mount of a regular file; the other fields are nil then.
	File   string
	Source *os.File
	Stack  *layer.Stack
	Policy *policy.Policy
}

// readAll are the rules of a mount without rules: it shows everything.
var readAll = []policy.Rule{{Pattern: "/**", Type: policy.Glob, Permission: policy.Read, Source: "--mount"}}

// HasView reports whether a mount is a view, unless it is of a file. Else it is a bind mount.
func HasView(m record.Mount) bool { return m.Mode == mountspec.ReadOnly || m.Mode.HasRules() }

// Open opens m, which has a view, of the sandbox s. Of its layers, options has the user, the
// quota, and whether they are read-only. Errors: NotFound, Denied; Invalid for a source that no
// sandbox, or not this one, may see; Precondition if it is no longer a directory that rules
// are for, or not the one on which the delta was made.
func Open(s *record.Sandbox, m record.Mount, options layer.Options) (*Mount, error) {
	o, err := open(s, m, options)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "mount %s at %s: %w", m.Source, m.Target, err)
	}
	return o, nil
}

func open(s *record.Sandbox, m record.Mount, options layer.Options) (*Mount, error) {
	path, err := resolve(s, string(m.Source))
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "%w", record.UnwrapErrno(err))
	}
	if err := mountspec.CheckSource(path); err != nil {
		return nil, err
	}
	for _, ours := range []string{string(s.Stored.Source.Path), s.Home.Dir()} {
		if safefs.IsBelow(path, ours) {
			return nil, errdefs.New(errdefs.Invalid, "it is in %s, which the sandbox may see only through its view, or not at all", record.HostPath(ours))
		}
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "%w", err)
	}
	o := &Mount{Source: os.NewFile(uintptr(fd), m.Name)}
	if err := o.fill(s, path, m, options); err != nil || o.File != "" {
		o.Source.Close()
		o.Source = nil
		return o, err
	}
	return o, nil
}

// resolve returns the path of a source without symbolic links. That of a server's sandbox has none:
// the server has checked where the path leads, and a link may have taken the place of a directory.
func resolve(s *record.Sandbox, path string) (string, error) {
	if s.Stored.Served != nil {
		return path, nil
	}
	return filepath.EvalSymlinks(path)
}

// fill sets the other fields.
func (o *Mount) fill(s *record.Sandbox, path string, m record.Mount, options layer.Options) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(o.Source.Fd()), &st); err != nil {
		return errdefs.New(errdefs.Internal, "%w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if s.Stored.Served != nil {
			return errdefs.New(errdefs.Precondition, "it is not a directory")
		}
		if m.Mode.HasRules() {
			return errdefs.New(errdefs.Precondition, "it was a directory, and is a file now, for which there are no rules")
		}
		o.File = path
		return nil
	}
	source := record.Source{Path: record.HostPath(path), Dev: st.Dev, Ino: st.Ino}
	reserved, err := s.Home.Reserved(source)
	if err == nil {
		reserved, err = record.ReserveWorkspace(reserved, source.Path, s.Stored.Source.Path)
	}
	if err != nil {
		return err
	}
	rules := readAll
	if m.Mode.HasRules() {
		rules = m.Rules
	}
	places := s.Stored.PlacesIn(m)
	reserved = slices.DeleteFunc(reserved, func(p vpath.Path) bool { return slices.Contains(places, p) })
	if o.Policy, err = policy.Compile(rules, policy.Options{Reserved: reserved, Places: places}); err != nil {
		return err
	}
	return o.openLayers(s, m, options)
}

// openLayers opens the source, with the delta if the mount has one.
func (o *Mount) openLayers(s *record.Sandbox, m record.Mount, options layer.Options) error {
	options.Source, options.Plain = o.Source, true
	if !m.HasDelta() {
		options.ReadOnly, options.QuotaOf = true, nil
	} else {
		part, err := s.InMount(m.Name)
		if err != nil {
			return err
		}
		if err := part.Stored.Source.IsOpen(o.Source); err != nil {
			return err
		}
		options.Dir, options.Store = part.LayersDir(), s.Home.LayerStore()
	}
	var err error
	o.Stack, err = layer.Open(options)
	return err
}

// Close releases what Open opened.
func (o *Mount) Close() error {
	if o.Stack == nil {
		return nil
	}
	err := o.Stack.Close()
	o.Source.Close()
	return err
}
