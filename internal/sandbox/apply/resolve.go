package apply

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
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
		return record.UnlessDenied(err)
	}
	is := base.Mode & record.TypeBits
	becomes := s.Info.Mode & record.TypeBits
	if s.Status == changes.Deleted {
		becomes = 0
	}
	switch {
	case record.IsDir(base.Mode) != record.IsDir(s.Info.Mode) && is != 0 && becomes != 0, record.IsDir(base.Mode) && becomes == 0:
		return nil // a directory against something else stays a conflict
	case becomes == 0:
	case is == 0:
		s.Status, s.SameContent = changes.Added, false
	case is != becomes:
		s.Status, s.SameContent = changes.Retyped, false
	default:
		s.Status = changes.Modified
	}
	s.Base, s.Fresh = base, true
	s.outcome, s.reason, s.overwrites = Applied, "", true
	return p.checkParent(s)
}

// baseNow records what the source holds at the step's path.
func (p *plan) baseNow(s *step) (*layer.Base, error) {
	var now layer.Info
	err := record.AsUser(func() (err error) {
		now, err = p.work.Stack.SourceInfo(s.Path)
		return err
	})
	if errdefs.Is(err, errdefs.NotFound) {
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
		if above.Status == changes.Deleted || above.Status == changes.Retyped && !record.IsDir(above.Info.Mode) {
			above.stop(Conflict, "it holds %s, which stays", changes.Quote(s.Path))
			above.done = false
		}
	}
}

// growth sums what was done.
func (p *plan) growth() changes.SizeDelta {
	var g changes.SizeDelta
	for _, s := range p.steps {
		if s.Status == 0 || s.outcome != Applied || !s.done {
			continue
		}
		if was := s.was; was != nil && !was.Absent {
			g.Add(was.Mode, was.Size, -1)
		}
		if s.Status != changes.Deleted {
			g.Add(s.Info.Mode, s.Info.Size, 1)
		}
	}
	return g
}
