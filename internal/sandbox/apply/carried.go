package apply

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// CarriedChange is a change that a server sends for the directory that a client uploaded.
type CarriedChange struct {
	Path    vpath.Path
	Status  changes.Status
	Outcome Outcome // what Changes would do with it on the server
	Reason  string
	// Mode is the type and the permission bits of the entry, or 0 if there is none or it is
	// not carried.
	Mode      uint32
	SizeBytes int64
	Target    string // of a symbolic link
	SHA256    string // in hex, of the content that was reviewed; "" without a review
}

// isCarried reports whether a change with the outcome is carried.
func isCarried(o Outcome) bool { return o == Applied || o == Present }

// ReadChanges calls put with each change that Changes would consider with o, parents before
// children, and with the content of each regular file that Changes would apply. It changes
// nothing. Errors: those of Changes and of put.
func ReadChanges(s *record.Sandbox, o Options, put func(CarriedChange, *os.File) error) (err error) {
	o.DryRun = true
	w, err := openToApply(s, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	changes, err := w.Changes(o.Paths, true)
	if err != nil {
		return err
	}
	p, err := planReviewed(w, changes, nil, o)
	if err != nil {
		return err
	}
	for _, s := range p.steps {
		if s.Status == 0 {
			continue
		}
		if err := p.carry(s, put); err != nil {
			return err
		}
	}
	for _, r := range p.goneResults() {
		if err := put(CarriedChange{Path: r.Path, Status: r.Status, Outcome: r.Outcome, Reason: r.Reason}, nil); err != nil {
			return err
		}
	}
	return nil
}

// carry calls put with a step.
func (p *plan) carry(s *step, put func(CarriedChange, *os.File) error) error {
	c := CarriedChange{Path: s.Path.Plain(), Status: s.Status, Outcome: s.outcome, Reason: s.reason}
	if !isCarried(s.outcome) || s.Kind == layer.Deleted {
		return put(c, nil)
	}
	target, err := "", error(nil)
	if s.Info.Mode&record.TypeBits == unix.S_IFLNK {
		if target, err = p.work.Stack.Readlink(s.Path); err != nil {
			return err
		}
	}
	e := manifest.EntryOf(&s.Change, target)
	c.Mode, c.Target = e.Mode, target
	if !e.IsRegular() {
		return put(c, nil)
	}
	var f *os.File
	err = rights.AsOwner(func() (err error) {
		f, err = p.work.Stack.OpenDelta(s.Path)
		return err
	})
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return record.HostError("read "+s.Path.String(), err)
	}
	c.SizeBytes, c.SHA256 = info.Size(), p.reviewed[s.Path].SHA256
	return put(c, f)
}
