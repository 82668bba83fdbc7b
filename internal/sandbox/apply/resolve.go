package apply

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// onConflict is what an apply does with conflicts. The delta keeps what is applied to another
// directory, and a second such apply could repeat merged lines: there texts are merged only if
// asked for.
func (o *Options) onConflict() conflict.Resolution {
	if o.To != nil && o.OnConflict == conflict.Merge {
		return conflict.Stop
	}
	return o.OnConflict
}

// resolve applies how to the conflicts of the plan, parents before children.
func (p *plan) resolve(how conflict.Resolution) error {
	for _, s := range p.steps {
		if how != conflict.Overwrite || s.outcome != Conflict {
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

// overwrite plans s against the source's present entry, if it can replace that entry
// without affecting entries below.
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
	s.stop(Applied, "")
	s.overwrites, s.moved = true, true
	return p.checkParent(s)
}

// baseNow returns the source's present entry at the step's path as a base.
func (p *plan) baseNow(s *step) (*layer.Base, error) {
	var now layer.Info
	err := rights.AsUser(func() (err error) {
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

// keepAbove keeps the parent directories of an entry that stays.
func (p *plan) keepAbove(s *step) {
	for dir := range s.Path.Ancestors() {
		above := p.at[dir]
		if above == nil || above.outcome != Applied {
			continue
		}
		if above.Status == changes.Deleted || above.Status == changes.Retyped && !record.IsDir(above.Info.Mode) {
			above.conflict(conflict.DeleteModify, "it contains %s, which stays", changes.Quote(s.Path))
			above.done = false
		}
	}
}

// growth returns the sum of the finished steps.
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
			g.Add(s.Info.Mode, s.placedSize(), 1)
		}
	}
	return g
}
