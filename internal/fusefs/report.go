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
	Kind ChangeKind
	PID  int // the thread that did it, in the mounter's pid namespace; 0: the kernel, for a mapping
}

// report is one of the two.
type report struct {
	denial *Denial
	change *Change
}

// reportsAhead is how many reports may wait. Changes wait for room then,
// refusals are counted instead.
const reportsAhead = 4096

func (fs *FS) report(c Change) {
	if fs.o.OnChange != nil {
		fs.reports <- report{change: &c}
	}
}

// runReports calls OnDenial and OnChange until the mount has ended.
func (fs *FS) runReports() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case r := <-fs.reports:
			fs.deliver(r)
		case <-tick.C:
			fs.deliverDenials(repeatTime)
		case <-fs.ended:
			for len(fs.reports) > 0 { // nobody adds to them any more
				fs.deliver(<-fs.reports)
			}
			fs.deliverDenials(0)
			return
		}
	}
}

func (fs *FS) deliver(r report) {
	if r.denial != nil {
		fs.o.OnDenial(*r.denial)
		return
	}
	fs.o.OnChange(*r.change)
}

func (fs *FS) deliverDenials(age time.Duration) {
	for _, d := range fs.denials.flush(age) {
		fs.o.OnDenial(d)
	}
}
