package fusefs

import (
	"time"

	"github.com/agentfense/agentfense/internal/vpath"
)

// ChangeKind says what happened to an entry.
type ChangeKind string

// The kinds of changes.
const (
	Created  ChangeKind = "created"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
	Renamed  ChangeKind = "renamed"
)

// Change is something that was changed through the mount. Writes to one file
// by one process are told once, until another comes in between.
type Change struct {
	Path vpath.Path
	To   vpath.Path // of Renamed
	Dir  bool       // of Renamed: all that is below moved too
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

// runDenials tells of refusals that were counted until the mount has ended.
func (fs *FS) runDenials() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fs.tellCounted(repeatTime)
		case <-fs.ended:
			fs.tellCounted(0) // nobody adds to them any more
			return
		}
	}
}

func (fs *FS) tellCounted(age time.Duration) {
	for _, d := range fs.denials.flush(age) {
		fs.o.OnDenial(d)
	}
}
