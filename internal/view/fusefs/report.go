package fusefs

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// ChangeKind says what happened to an entry.
type ChangeKind string

// The kinds of changes.
const (
	Created  ChangeKind = "created"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
	Renamed  ChangeKind = "renamed"
	Lost     ChangeKind = "lost" // of OnSource alone: something may have changed anywhere
)

// Change is something that was changed through the mount. Writes to one file
// by one process are told once, until another comes in between or somebody is
// concluded.
type Change struct {
	Path vpath.Path // names own entries as such, and so does To
	To   vpath.Path // of Renamed
	Dir  bool       // of Renamed: all that is below moved too
	Over bool       // of Renamed: something else was at To
	Kind ChangeKind
	PID  int // the thread that did it, in the mounter's pid namespace; 0: the kernel, for a mapping
}

// report tells of a change before it is answered: whoever made it waits, so
// nothing that a command did is told after its end.
func (fs *FS) report(c Change) {
	if fs.o.OnChange != nil {
		fs.o.OnChange(c)
	}
}

// Watch has changes of the source told, and each write, not the first of a
// process alone.
func (fs *FS) Watch(on bool) { fs.watched.Store(on && fs.o.OnSource != nil) }

// reportSource tells of what somebody did to name in the source, if it shows.
// child is what the kernel knew by that name.
func (fs *FS) reportSource(p vpath.Path, d policy.Decision, child *node, mask uint32) {
	c := Change{Path: p, Dir: mask&unix.IN_ISDIR != 0}
	info, err := fs.o.Layer.Lookup(p)
	switch {
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		if !notFound(err) {
			return
		}
		c.Kind = Deleted
	case err != nil || info.Origin != layer.Source || !visible(d, info.Mode):
		return
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && child == nil:
		c.Kind = Created
	default:
		c.Kind = Modified
	}
	fs.o.OnSource(c)
}

// runDenials tells of refusals that were counted until the mount has ended.
func (fs *FS) runDenials() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fs.tellCounted(func(_ any, first time.Time) bool { return time.Since(first) >= repeatTime })
		case <-fs.ended:
			fs.tellCounted(func(any, time.Time) bool { return true }) // nobody adds to them any more
			return
		}
	}
}

// Conclude tells of the refusals of owner's processes that were counted so far,
// and has whatever these change from now on be told anew. Once its processes
// have ended, nothing of owner is told after it. It must not be called from
// OnDenial or OnChange.
func (fs *FS) Conclude(owner any) {
	fs.era.Add(1)
	fs.tellCounted(func(of any, _ time.Time) bool { return of == owner })
}

func (fs *FS) tellCounted(due func(owner any, first time.Time) bool) {
	fs.telling.Lock() // what another has taken is told before we return
	defer fs.telling.Unlock()
	for _, d := range fs.denials.flush(due) {
		fs.o.OnDenial(d)
	}
}
