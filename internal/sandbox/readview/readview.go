// Package readview reads from outside what a sandbox sees: its layers under its policy, also
// beside a running supervisor. It changes nothing.
package readview

import (
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/mounted"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/shown"
)

// View is what one sandbox sees.
type View struct {
	stack     *layer.Stack
	policy    *policy.Policy
	source    *os.File
	workspace string // the source's path inside
	alias     string // another that leads there; "" if none does
	linked    func() (map[layer.FileID][]vpath.Path, error)
}

// Entry is a file or directory as a process inside would see it.
type Entry struct {
	Path       vpath.Path
	Permission policy.Permission
	Mode       uint32 // S_IFMT and permission bits
	SizeBytes  int64
	ModifiedAt time.Time
	Origin     Origin
	Target     string // of a symbolic link that can be read
}

// Origin is what holds a file.
type Origin string

// The origins.
const (
	OfSource Origin = "source"
	OfFrozen Origin = "frozen" // a frozen layer
	OfDelta  Origin = "delta"
)

var originOf = map[layer.Origin]Origin{layer.Source: OfSource, layer.Frozen: OfFrozen, layer.Delta: OfDelta}

// Open opens what a sandbox of this home sees; without its source (see
// SourceLost) that is what the delta holds. Close it after. Errors: those of
// Source.Open.
func Open(h *record.Home, s *record.Sandbox) (*View, error) {
	reserved, err := h.Reserved(s.Stored.Source)
	if err != nil {
		return nil, err
	}
	v := &View{workspace: s.Stored.Workspace, alias: s.Stored.Alias()}
	if v.policy, err = policy.Compile(s.Stored.Rules, policy.Options{Reserved: reserved}); err != nil {
		return nil, err
	}
	if v.source, _, err = s.SourceToRead(); err != nil {
		return nil, err
	}
	if v.stack, err = changes.OpenLayers(s, v.source, layer.Options{ReadOnly: true}); err != nil {
		v.source.Close()
		return nil, err
	}
	v.stack.SetTransforms(shown.Transforms(v.policy))
	v.linked = sync.OnceValues(v.stack.Linked)
	return v, nil
}

// OpenMount opens what a sandbox sees in the mount called name. Errors: NotFound for a name that
// no mount has; Unsupported for a mount that is no view; those of mounted.Open.
func OpenMount(s *record.Sandbox, name string) (*View, error) {
	m, err := s.MountNamed(name)
	if err != nil {
		return nil, err
	}
	return OpenIn(s, m)
}

// OpenIn is OpenMount of a mount of the sandbox.
func OpenIn(s *record.Sandbox, m record.Mount) (*View, error) {
	user, err := rights.SourceUser()
	if err != nil {
		return nil, err
	}
	var o *mounted.Mount
	if mounted.HasView(m) {
		if o, err = mounted.Open(s, m, layer.Options{User: user, ReadOnly: true}); err != nil {
			return nil, err
		}
	}
	if o == nil || o.File != "" {
		return nil, errdefs.New(errdefs.Unsupported, "mount %s: bind-mounted, without a view; read it on the host: %s", m.Name, m.Source)
	}
	o.Stack.SetTransforms(shown.Transforms(o.Policy))
	return &View{stack: o.Stack, policy: o.Policy, source: o.Source, workspace: string(m.Target), linked: sync.OnceValues(o.Stack.Linked)}, nil
}

// Explain returns the decision of the view's policy about a path.
func (v *View) Explain(path vpath.Path) policy.Explanation { return v.policy.Explain(path) }

// Rules are those of the view's policy, to which explanations refer by index.
func (v *View) Rules() []policy.Rule { return v.policy.Rules() }

// Close releases what Open opened.
func (v *View) Close() {
	v.stack.Close()
	v.source.Close()
}

// Stat describes a path. Errors: NotFound also for what the policy hides.
func (v *View) Stat(path vpath.Path) (Entry, error) {
	at := v.stack.Resolve(path)
	info, err := v.stack.Lookup(at)
	if err != nil {
		return Entry{}, err
	}
	d := v.policy.Decide(at)
	permission := d.Permission
	if info.IsDir() {
		permission = d.ForDir()
	}
	if permission == policy.None && !path.IsRoot() {
		return Entry{}, errdefs.New(errdefs.NotFound, "%s: no such file or directory", path)
	}
	if permission, err = v.ofNames(permission, &info); err != nil {
		return Entry{}, err
	}
	entry := Entry{
		Path: path, Permission: permission, Mode: info.Mode, SizeBytes: info.Size,
		ModifiedAt: time.Unix(info.Mtime.Unix()).UTC(), Origin: originOf[info.Origin],
	}
	if info.Mode&record.TypeBits == unix.S_IFLNK && permission >= policy.Read {
		entry.Target, err = v.stack.Readlink(at)
	}
	return entry, err
}

// ofNames lowers the permission of a visible file that commands gave several names to that of the
// strictest: under another policy, a name that shows may have been made of one that is hidden now.
// At least the name stays visible.
func (v *View) ofNames(permission policy.Permission, info *layer.Info) (policy.Permission, error) {
	if info.IsDir() || info.Nlink < 2 {
		return permission, nil
	}
	linked, err := v.linked()
	if names := linked[info.ID]; err == nil && len(names) > 0 {
		permission = max(policy.View, min(permission, v.policy.DecideNames(names).Permission))
	}
	return permission, err
}

// List returns the visible entries of a directory by path, or the path itself
// if it is no directory. Errors: as Stat.
func (v *View) List(dir vpath.Path) ([]Entry, error) {
	entries := []Entry{}
	for entry, err := range v.ListAfter(dir, "") {
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// ListAfter yields of what List returns that which comes behind the path after.
// It ends with the first error.
func (v *View) ListAfter(dir, after vpath.Path) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		self, err := v.Stat(dir)
		if err == nil && !record.IsDir(self.Mode) {
			yield(self, nil)
			return
		}
		var children []layer.DirEntry
		if err == nil {
			children, err = v.stack.ReadDir(v.stack.Resolve(dir))
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		children = layer.AsSeen(children)
		slices.SortFunc(children, func(a, b layer.DirEntry) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range children {
			path := dir.Child(c.Name)
			if path <= after {
				continue
			}
			entry, err := v.Stat(path)
			if errdefs.Is(err, errdefs.NotFound) {
				continue // hidden, or removed meanwhile
			}
			if !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

// Copy writes a file to w, also by way of symbolic links within the workspace.
// Errors: as follow; Denied for a file of which the policy shows the name alone;
// what w returns.
func (v *View) Copy(w io.Writer, path vpath.Path) error {
	entry, err := v.follow(path)
	switch {
	case err != nil:
		return err
	case entry.Permission < policy.Read && !entry.Path.IsRoot():
		return nameOnly(entry)
	}
	f, info, err := v.stack.Open(v.stack.Resolve(entry.Path), false)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, io.NewSectionReader(f, 0, info.Size))
	return err
}
