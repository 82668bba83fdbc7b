package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// mountView is a mount that this process shows as a view beside the workspace's.
type mountView struct {
	name   string
	target string
	source *os.File
	stack  *layer.Stack
	policy *policy.Policy
	view   *fusefs.FS // nil until it is mounted
}

// readAll are the rules of a mount without rules of its own: it shows everything.
var readAll = []policy.Rule{{Pattern: "/**", Type: policy.Glob, Permission: policy.Read, Source: "--mount"}}

// openMounts opens the sources of the mounts. A file, and a mount of mode bind, is left to the
// isolator.
func (s *supervisor) openMounts(context.Context) error {
	for _, m := range s.record.Mounts {
		if m.Mode == mountspec.Bind || m.Mode == "" {
			s.binds = append(s.binds, isolate.Mount{Source: string(m.Source), Target: string(m.Target)})
			continue
		}
		if err := s.openMount(m); err != nil {
			return errdefs.New(errdefs.KindOf(err), "mount %s at %s: %w", m.Source, m.Target, err)
		}
	}
	return nil
}

func (s *supervisor) openMount(m record.Mount) error {
	path, err := filepath.EvalSymlinks(string(m.Source))
	if err != nil {
		return errdefs.New(safefs.Kind(err), "%w", record.UnwrapErrno(err))
	}
	if err := mountspec.CheckSource(path); err != nil {
		return err
	}
	workspace := string(s.record.Source.Path)
	for _, ours := range []string{workspace, s.home.Dir()} {
		if safefs.IsBelow(path, ours) {
			return errdefs.New(errdefs.Invalid, "it is in %s, which the sandbox may see only through its view, or not at all", record.HostPath(ours))
		}
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return errdefs.New(safefs.Kind(err), "%w", err)
	}
	v := &mountView{name: m.Name, target: string(m.Target), source: os.NewFile(uintptr(fd), m.Name)}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		v.source.Close()
		return errdefs.New(errdefs.Internal, "%w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		v.source.Close()
		if m.Mode.HasRules() {
			return errdefs.New(errdefs.Precondition, "it was a directory, and is a file now, for which there are no rules")
		}
		s.binds = append(s.binds, isolate.Mount{Source: path, Target: v.target})
		return nil
	}
	s.mounts = append(s.mounts, v) // tearDown closes it
	reserved, err := s.home.Reserved(record.Source{Path: record.HostPath(path), Dev: st.Dev, Ino: st.Ino})
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
	if v.policy, err = policy.Compile(rules, policy.Options{Reserved: reserved}); err != nil {
		return err
	}
	v.stack, err = layer.Open(layer.Options{Source: v.source, ReadOnly: true, Plain: true, User: layerUser()})
	return err
}

// layerUser is the user whose rights to a source apply: nil for root.
func layerUser() *layer.User {
	if uid := os.Geteuid(); uid != 0 {
		return &layer.User{UID: uint32(uid)}
	}
	return nil
}

// mountAll mounts the workspace's view, and those of the mounts on the same connection.
func (s *supervisor) mountAll(mountpoint string, workspace fusefs.Options) (err error) {
	if len(s.mounts) == 0 {
		s.view, err = fusefs.Mount(mountpoint, workspace)
		return err
	}
	views := []fusefs.View{{Name: mountspec.Workspace, Options: workspace}}
	for _, m := range s.mounts {
		views = append(views, fusefs.View{Name: m.name, Options: fusefs.Options{
			Layer: m.stack, Policy: m.policy, UID: workspace.UID, GID: workspace.GID,
			OnDenial: func(d fusefs.Denial) { s.noteDenial(m.name, m.policy.Rules(), d) },
			Owner:    s.ownerOf, Logger: s.log.With("mount", m.name),
		}})
	}
	mounted, err := fusefs.MountAll(mountpoint, views)
	if err != nil {
		return err
	}
	s.view = mounted[0]
	for i, m := range s.mounts {
		m.view = mounted[i+1]
	}
	return nil
}

// shown are the mounts in the words of the isolator, and the name of the workspace's view.
func (s *supervisor) shown() (workspace string, mounts []isolate.Mount) {
	mounts = s.binds
	for _, m := range s.mounts {
		workspace = mountspec.Workspace
		mounts = append(mounts, isolate.Mount{View: m.name, Target: m.target})
	}
	return workspace, mounts
}

// mountsOfRun describes the mounts for the audit log.
func (s *supervisor) mountsOfRun() []audit.Mount {
	var list []audit.Mount
	for _, m := range s.record.Mounts {
		list = append(list, audit.Mount{Source: audit.Text(m.Source), Target: audit.Text(m.Target), Name: m.Name, Mode: string(m.Mode)})
	}
	return list
}

// concludeViews reports what was counted of a command's refusals, in every view.
func (s *supervisor) concludeViews(x *execution) {
	s.view.Conclude(x)
	for _, m := range s.mounts {
		m.view.Conclude(x)
	}
}

// closeMounts lets go of the mounts' sources. It comes after the end of the views.
func (s *supervisor) closeMounts() error {
	var errs []error
	for _, m := range s.mounts {
		if m.stack != nil {
			errs = append(errs, m.stack.Close())
		}
		errs = append(errs, m.source.Close())
	}
	return errors.Join(errs...)
}

// noteDenial writes a refusal into the audit log and adds it to what its command was
// refused. mount is the view's, "" for the workspace, and rules are those in force there.
func (s *supervisor) noteDenial(mount string, rules []policy.Rule, d fusefs.Denial) {
	event := audit.PermissionDenied{
		Mount: mount, Path: audit.Path(d.Path), Operation: d.Operation, Permission: d.Permission.String(),
		RuleIndex: d.Rule, PID: d.PID, Program: audit.Text(d.Program), Count: d.Count,
	}
	if d.Rule != policy.NoRule && d.Rule < len(rules) {
		event.Rule, event.RuleSource = audit.Text(rules[d.Rule].Pattern), audit.Text(rules[d.Rule].Source)
	}
	if x := d.Owner.(*execution); x != nil {
		event.Exec = x.id
		x.denials.Note(d, mount, string(event.Rule))
	}
	s.append(event)
}
