package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
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

// PlannedChange is a change as ReadPlanned reads it.
type PlannedChange struct {
	CarriedChange
	Base  *layer.Base // what the sandbox saw
	Shown PathResult  // the result of a dry run
}

// isCarried reports whether a change with the outcome is carried.
func isCarried(o Outcome) bool { return o == Applied || o == Present }

// ReadChanges calls put with each change that Changes would consider with o, parents before
// children, and with the content of each regular file that Changes would apply. It changes
// nothing. Errors: those of Changes and of put.
func ReadChanges(s *record.Sandbox, o Options, put func(CarriedChange, *os.File) error) error {
	_, err := ReadPlanned(s, o, func(c PlannedChange, f *os.File) error { return put(c.CarriedChange, f) })
	return err
}

// ReadPlanned is ReadChanges with more of each change. It returns the groups of the changes, too.
func ReadPlanned(s *record.Sandbox, o Options, put func(PlannedChange, *os.File) error) (groups []review.Group, err error) {
	o.DryRun = true
	w, err := openToApply(s, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	p, err := planSelected(w, o)
	if err != nil {
		return nil, err
	}
	for _, s := range p.steps {
		if s.Status == 0 {
			continue
		}
		if err := p.carry(s, put); err != nil {
			return nil, err
		}
	}
	for _, r := range p.goneResults() {
		gone := CarriedChange{Path: r.Path, Status: r.Status, Outcome: r.Outcome, Reason: r.Reason}
		if err := put(PlannedChange{CarriedChange: gone, Shown: r}, nil); err != nil {
			return nil, err
		}
	}
	return p.groups, nil
}

// carry calls put with a step.
func (p *plan) carry(s *step, put func(PlannedChange, *os.File) error) error {
	c := PlannedChange{CarriedChange{Path: s.Path.Plain(), Status: s.Status, Outcome: s.outcome, Reason: s.reason}, s.Base, s.result()}
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
	if s.part != nil {
		return p.carryPart(s, c, put)
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

// carryPart is carry of a part of a file. Package hunk has compared the sandbox's file with what
// was reviewed.
func (p *plan) carryPart(s *step, c PlannedChange, put func(PlannedChange, *os.File) error) error {
	if err := p.checkSum(s, s.merging.Sum); err != nil {
		c.Outcome, c.Reason = ChangedSinceReview, nowElse
		c.Shown.Outcome, c.Shown.Reason = c.Outcome, c.Reason
		return put(c, nil)
	}
	f, err := changes.TextFile(s.merging.Text)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.Sum256(s.merging.Text)
	c.Mode, c.SizeBytes, c.SHA256 = s.placedMode(), int64(len(s.merging.Text)), hex.EncodeToString(sum[:])
	return put(c, f)
}
