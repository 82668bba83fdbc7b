package apply

import (
	"crypto/sha256"
	"encoding/json"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// After a killed apply, the source has entries that the delta still lists as changes. If
// the sandbox changes such an entry before the next apply or discard, its recorded base no
// longer matches the source, and the sandbox would conflict with itself. Therefore an apply
// lists the entries before it places them. The next apply or discard makes a listed entry
// the base of the sandbox's entry (layer.Stack.DropMatching), if the source still has it.

// placing returns what the step will place: the version of the delta's entry, with the
// resulting entry of the source. file is the staged file, or nil. known is false if the
// result cannot be predicted.
func (a *applier) placing(s *step, file *changes.Staged) (v changes.Version, known bool) {
	v = s.Version()
	v.Keep, v.Merged = s.keepsRest(), s.merged
	v.Made = &layer.Base{Mode: s.Info.Mode & (record.TypeBits | record.StickyBits), Mtime: s.Info.Mtime}
	switch {
	case s.Status == changes.Deleted:
		v.Made = &layer.Base{Absent: true}
	case record.IsDir(s.Info.Mode):
		v.Made.Mtime = unix.Timespec{}
	case s.Info.Mode&record.TypeBits == unix.S_IFLNK:
		target, err := a.plan.target(s)
		if err != nil {
			return v, false
		}
		sum := sha256.Sum256([]byte(target))
		v.Made.SHA256, v.Made.Mode = sum[:], s.Info.Mode
	case s.Info.Mode&record.TypeBits == unix.S_IFREG:
		st, err := a.statStaged(s, file)
		if err != nil || st == nil {
			return v, false
		}
		v.Made = changes.BaseOf(st)
		v.Made.Mode = s.placedMode()
	}
	return v, true
}

// statStaged describes the staged file of s, or the source's file if only its mode changes.
func (a *applier) statStaged(s *step, file *changes.Staged) (st *unix.Stat_t, err error) {
	if file != nil {
		st = &unix.Stat_t{}
		return st, unix.Fstat(int(file.File.Fd()), st)
	}
	err = a.work.Tree.At(s.Path, func(e changes.Entry) (err error) {
		st, err = e.Stat()
		return err
	})
	return st, err
}

// listPlacing lists, durably, what the steps will place. staged returns the staged file of
// a step, or nil. The journal has it too. If the disk has no room for the list, the worst
// result is a conflict in the next apply.
func (a *applier) listPlacing(steps []*step, staged func(*step) *changes.Staged) error {
	var lines []string
	for _, s := range steps {
		v, known := a.placing(s, staged(s))
		if !known {
			continue
		}
		a.plan.willPlace(s, v.Made, staged(s))
		if a.work.Elsewhere {
			continue // the delta does not change
		}
		s.places = v.Made
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		lines = append(lines, string(line))
	}
	if a.plan.txn != nil {
		if err := a.plan.txn.Flush(); err != nil {
			return err
		}
	}
	if err := a.work.ApplyLock.Append(lines); !errdefs.Is(err, errdefs.Exhausted) {
		return err
	}
	return nil
}

// target returns the target of the link in the delta.
func (p *plan) target(s *step) (target string, err error) {
	err = rights.AsOwner(func() (err error) {
		target, err = p.work.Stack.Readlink(s.Path)
		return err
	})
	return target, err
}

// unstaged returns the steps that place an entry without a staged file.
func (p *plan) unstaged() []*step {
	var steps []*step
	for _, s := range p.steps {
		if !s.done && s.outcome == Applied && (s.Status == changes.Deleted || s.Info.Mode&record.TypeBits != unix.S_IFREG) {
			steps = append(steps, s)
		}
	}
	return steps
}
