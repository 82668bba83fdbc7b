package sandbox

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/layer"
)

// OnConflict says what an apply does where the source is not what the sandbox
// saw.
type OnConflict uint8

// The answers. All but Stop apply the paths that are in no conflict.
const (
	Stop      OnConflict = iota // nothing is applied
	Leave                       // the source stays there, and the delta keeps its entry
	Overwrite                   // the sandbox's version wins, unless a directory stands in the way
)

// Growth is by how much an apply made the source grow: names of everything but
// directories, the bytes of regular files, and directories.
type Growth struct{ Files, Bytes, Dirs int64 }

// add counts what has the mode and size, or with a sign of -1 discounts it.
func (g *Growth) add(mode uint32, size, sign int64) {
	if isDir(mode) {
		g.Dirs += sign
		return
	}
	g.Files += sign
	g.Bytes = hostfile.AddSizes(g.Bytes, sign*regularSize(mode, size))
}

// HasChanges reports whether the sandbox's delta holds anything.
func (s *Sandbox) HasChanges() (bool, error) {
	w, err := s.openToRead()
	if err != nil {
		return false, err
	}
	changed, err := w.stack.HasChanges()
	return changed, errors.Join(err, w.close())
}

// CountChanges returns how many changes a diff would list: what is lost with the
// sandbox.
func (s *Sandbox) CountChanges() (int, error) {
	p, err := s.Pending()
	return p.Changes, err
}

// Pending is what a sandbox holds.
type Pending struct {
	Changes int // that a diff would list
	LeftOut int // of these, that no apply takes
}

// PendingOf counts what a diff lists.
func PendingOf(files []FileDiff) Pending {
	p := Pending{Changes: len(files)}
	for i := range files {
		if files[i].LeftOut != "" {
			p.LeftOut++
		}
	}
	return p
}

// Pending returns what is lost with the sandbox.
func (s *Sandbox) Pending() (Pending, error) {
	if changed, err := s.HasChanges(); err != nil || !changed {
		return Pending{}, err
	}
	r, err := s.Review()
	if err != nil {
		return Pending{}, err
	}
	return PendingOf(r.Files()), r.Close()
}

// resolve answers the conflicts of the plan, parents before children.
func (p *plan) resolve(how OnConflict) error {
	for _, s := range p.steps {
		if how != Overwrite || s.outcome != Conflict {
			continue
		}
		if err := p.overwrite(s); err != nil {
			return err
		}
	}
	for _, s := range p.steps {
		if s.outcome == Conflict || s.outcome == Refused {
			p.keepAbove(s)
		}
	}
	return nil
}

// overwrite plans s against what the source holds now, if one entry can take
// the place of the other without anything below it.
func (p *plan) overwrite(s *step) error {
	base, err := p.baseNow(s)
	if err != nil {
		return unlessDenied(err)
	}
	is := base.Mode & typeBits
	becomes := s.Info.Mode & typeBits
	if s.status == Deleted {
		becomes = 0
	}
	switch {
	case isDir(base.Mode) != isDir(s.Info.Mode) && is != 0 && becomes != 0, isDir(base.Mode) && becomes == 0:
		return nil // a directory against something else stays a conflict
	case becomes == 0:
	case is == 0:
		s.status, s.sameContent = Added, false
	case is != becomes:
		s.status, s.sameContent = Retyped, false
	default:
		s.status = Modified
	}
	s.Base, s.fresh = base, true
	s.outcome, s.reason, s.overwrites = Applied, "", true
	return p.checkParent(s)
}

// baseNow records what the source holds at the step's path.
func (p *plan) baseNow(s *step) (*layer.Base, error) {
	var now layer.Info
	err := asUser(func() (err error) {
		now, err = p.work.stack.SourceInfo(s.Path)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return &layer.Base{Absent: true}, nil
	}
	if err != nil {
		return nil, err
	}
	return &layer.Base{
		Dev: now.ID.Dev, Ino: now.ID.Ino, Size: now.Size, Mode: now.Mode, Nlink: 1, Mtime: now.Mtime, Ctime: now.Ctime,
	}, nil
}

// keepAbove leaves the directories alone whose removal would take what stays.
func (p *plan) keepAbove(s *step) {
	for dir := range s.Path.Ancestors() {
		above := p.at[dir]
		if above == nil || above.outcome != Applied {
			continue
		}
		if above.status == Deleted || above.status == Retyped && !isDir(above.Info.Mode) {
			above.stop(Conflict, "it holds %s, which stays", quote(s.Path))
			above.done = false
		}
	}
}

// growth sums what was done.
func (p *plan) growth() Growth {
	var g Growth
	for _, s := range p.steps {
		if s.status == 0 || s.outcome != Applied || !s.done {
			continue
		}
		if was := s.was; was != nil && !was.Absent {
			g.add(was.Mode, was.Size, -1)
		}
		if s.status != Deleted {
			g.add(s.Info.Mode, s.Info.Size, 1)
		}
	}
	return g
}

func regularSize(mode uint32, size int64) int64 {
	if mode&typeBits != unix.S_IFREG {
		return 0
	}
	return size
}
