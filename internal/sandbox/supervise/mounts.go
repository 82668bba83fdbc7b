package supervise

import (
	"context"
	"errors"
	"os"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/mounted"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/effects"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// mountView is a mount that this process shows as a view beside the workspace's.
type mountView struct {
	*mounted.Mount
	name         string
	target       string
	writable     bool              // commands may write in it
	rulesChanged bool              // the delta was also changed under other rules
	view         *fusefs.FS        // nil until it is mounted
	background   effects.ChangeSet // of processes whose command has ended
}

// openMounts opens the sources of the mounts. A file, and a mount of mode bind, is left to the
// isolator.
func (s *supervisor) openMounts(context.Context) error {
	for _, m := range s.record.Mounts {
		bind := string(m.Source)
		if mounted.HasView(m) {
			o, err := mounted.Open(s.box, m, layer.Options{User: layerUser(), QuotaOf: s.stack, Share: 2 * len(s.record.Mounts)})
			if err != nil {
				return err
			}
			if bind = o.File; bind == "" {
				s.mounts = append(s.mounts, &mountView{
					Mount: o, name: m.Name, target: string(m.Target), writable: m.HasDelta(), rulesChanged: len(m.EarlierRules) > 0,
				}) // tearDown closes it
				continue
			}
		}
		s.binds = append(s.binds, isolate.Mount{Source: bind, Target: string(m.Target)})
	}
	return nil
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
			Layer: m.Stack, Policy: m.Policy, PolicyChanged: m.rulesChanged, UID: workspace.UID, GID: workspace.GID,
			OnChange: func(c fusefs.Change) { s.noteChange(m, c) },
			OnSource: func(c fusefs.Change) { s.watches.note(m.name, c) },
			OnDenial: func(d fusefs.Denial) { s.noteDenial(m.name, m.Policy.Rules(), d) },
			Owner:    s.ownerOf, Logger: s.log.With("mount", m.name), Ask: s.askerIn(m),
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

// concludeViews reports what was counted of a command's refusals, in every view.
func (s *supervisor) concludeViews(x *execution) {
	s.view.Conclude(x)
	for _, m := range s.mounts {
		m.view.Conclude(x)
	}
}

// noteChange adds a change in a mount to what its command did there. It is called as onChange
// is.
func (s *supervisor) noteChange(m *mountView, c fusefs.Change) {
	set := &m.background
	if x := s.owners.Find(c.PID); x != nil {
		set = x.changesIn(m.name)
	}
	set.Note(c)
	s.watches.note(m.name, c)
}

// viewOf returns the view of a mount, "" for the workspace's. Errors: Unsupported for a mount that
// has none.
func (s *supervisor) viewOf(mount string) (*fusefs.FS, error) {
	if mount == "" {
		return s.view, nil
	}
	for _, m := range s.mounts {
		if m.name == mount {
			return m.view, nil
		}
	}
	return nil, errdefs.New(errdefs.Unsupported, "mount %q: has no view", mount)
}

// watchSource turns on or off the reports of changes of a mount's source, "" for the workspace's.
func (s *supervisor) watchSource(mount string, on bool) {
	if view, err := s.viewOf(mount); err == nil {
		view.Watch(on)
	}
}

// mountOf returns the mount with a delta that has the name.
func (s *supervisor) mountOf(name string) (*mountView, error) {
	for _, m := range s.mounts {
		if m.name == name && m.writable {
			return m, nil
		}
	}
	return nil, errdefs.New(errdefs.NotFound, "control: no mount %q has changes", name)
}

// drop forgets entries of the delta of a mount, "" for the workspace's, shows the source there, and
// returns the paths that were written to since.
func (s *supervisor) drop(mount string, versions []changes.Version) ([]vpath.Path, error) {
	stack, view := s.stack, s.view
	if mount != "" {
		m, err := s.mountOf(mount)
		if err != nil {
			return nil, err
		}
		stack, view = m.Stack, m.view
	}
	before := s.states(mount, stack, versions)
	stale, err := changes.DropVersions(stack, versions)
	paths, pathErr := changes.PathsOf(versions)
	view.Invalidate(paths...)
	s.tellDropped(mount, stack, before)
	return stale, errors.Join(err, pathErr)
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
	if d.Locked {
		event.RuleSource = audit.Text(d.Reason)
	}
	told := string(event.Rule)
	if event.Rule != "" && rules[d.Rule].Permission == policy.None {
		told = "" // its pattern may name what is hidden
	}
	s.noteForProgram(mount, d, told)
	if x := d.Owner.(*execution); x != nil {
		event.Exec = x.id
		x.denials.Note(d, mount, string(event.Rule))
	}
	s.append(event)
}
