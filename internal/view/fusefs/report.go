package fusefs

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// ChangeKind is the kind of a change.
type ChangeKind string

// The kinds of changes.
const (
	Created  ChangeKind = "created"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
	Renamed  ChangeKind = "renamed"
	Lost     ChangeKind = "lost" // OnSource only: anything may have changed
)

// Change is a change through the mount. Consecutive writes to one file by one process are
// reported once, until the next Conclude.
type Change struct {
	Path vpath.Path // with own names of own entries, as in To
	To   vpath.Path // of Renamed
	Dir  bool       // of Renamed: everything below moved too
	Over bool       // of Renamed: it replaced an entry at To
	Kind ChangeKind
	PID  int // the thread that made it, in the mounter's pid namespace; 0: the kernel, for a mapping
}

// report reports a change before the reply. The process that made it waits, so no change of
// a command is reported after its end.
func (fs *FS) report(c Change) {
	if fs.o.OnChange != nil {
		fs.o.OnChange(c)
	}
}

// Watch turns on or off the reports of changes of the source, and of each write instead of
// the first of a process.
func (fs *FS) Watch(on bool) { fs.watched.Store(on && fs.o.OnSource != nil) }

// reportSource reports a change of name in the source, if the view shows it. child is the
// node that the kernel knew by that name.
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

// lookPause is how often runDenials looks which counts are due.
const lookPause = time.Second

// runDenials reports counted refusals until the mount has ended. It sleeps while there are none:
// each time that a process wakes, it needs some hundred KiB of memory.
func (fs *FS) runDenials() {
	period := cmp.Or(fs.o.RepeatTime, repeatTime)
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	tick.Stop()
	for {
		select {
		case <-fs.denials.begun:
			tick.Reset(lookPause)
		case <-tick.C:
			fs.reportCounted(func(_ any, first time.Time) bool { return time.Since(first) >= period })
			if fs.denials.isEmpty() {
				tick.Stop()
			}
		case <-fs.ended:
			fs.reportCounted(func(any, time.Time) bool { return true }) // no more can come
			return
		}
	}
}

// Conclude reports the counted refusals of owner's processes, and makes their next writes
// count as new changes. If the processes have ended, nothing more is reported of owner. Do
// not call Conclude from OnDenial or OnChange.
func (fs *FS) Conclude(owner any) {
	fs.era.Add(1)
	fs.reportCounted(func(of any, _ time.Time) bool { return of == owner })
}

func (fs *FS) reportCounted(due func(owner any, first time.Time) bool) {
	fs.reporting.Lock() // wait until a concurrent call has reported what it took
	defer fs.reporting.Unlock()
	for _, d := range fs.denials.flush(due) {
		fs.o.OnDenial(d)
	}
}
