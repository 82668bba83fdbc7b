// Package mounted opens what a sandbox sees in one of its mounts: the source, under the rules of
// the mount. It promises that no mount shows what is the sandbox's own or agentfense's: the
// workspace's source and the state directory.
package mounted

import (
	"os"
	"path/filepath"
	"strings"

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

// Open opens m, which has a view, of the sandbox with the record r. The rights of user apply to
// the source (see layer.Options). Errors: NotFound, Denied; Invalid for a source that no
// sandbox, or not this one, may see; Precondition if it is no longer a directory that rules
// are for.
func Open(h *record.Home, r *record.Record, m record.Mount, user *layer.User) (*Mount, error) {
	o, err := open(h, r, m, user)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "mount %s at %s: %w", m.Source, m.Target, err)
	}
	return o, nil
}

func open(h *record.Home, r *record.Record, m record.Mount, user *layer.User) (*Mount, error) {
	path, err := filepath.EvalSymlinks(string(m.Source))
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "%w", record.UnwrapErrno(err))
	}
	if err := mountspec.CheckSource(path); err != nil {
		return nil, err
	}
	workspace := string(r.Source.Path)
	for _, ours := range []string{workspace, h.Dir()} {
		if safefs.IsBelow(path, ours) {
			return nil, errdefs.New(errdefs.Invalid, "it is in %s, which the sandbox may see only through its view, or not at all", record.HostPath(ours))
		}
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "%w", err)
	}
	o := &Mount{Source: os.NewFile(uintptr(fd), m.Name)}
	if err := o.fill(h, path, workspace, m, user); err != nil || o.File != "" {
		o.Source.Close()
		o.Source = nil
		return o, err
	}
	return o, nil
}

// fill sets the other fields.
func (o *Mount) fill(h *record.Home, path, workspace string, m record.Mount, user *layer.User) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(o.Source.Fd()), &st); err != nil {
		return errdefs.New(errdefs.Internal, "%w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if m.Mode.HasRules() {
			return errdefs.New(errdefs.Precondition, "it was a directory, and is a file now, for which there are no rules")
		}
		o.File = path
		return nil
	}
	reserved, err := h.Reserved(record.Source{Path: record.HostPath(path), Dev: st.Dev, Ino: st.Ino})
	if err != nil {
		return err
	}
	if safefs.IsBelow(workspace, path) {
		p, err := vpath.Parse(strings.TrimPrefix(workspace, path))
		if err != nil {
			return err
		}
		reserved = append(reserved, p)
	}
	rules := readAll
	if m.Mode.HasRules() {
		rules = m.Rules
	}
	if o.Policy, err = policy.Compile(rules, policy.Options{Reserved: reserved}); err != nil {
		return err
	}
	o.Stack, err = layer.Open(layer.Options{Source: o.Source, ReadOnly: true, Plain: true, User: user})
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
