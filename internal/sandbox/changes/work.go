// Package changes opens the changes of a sandbox beside its source, so that they
// can be shown, applied or discarded. It compares the delta with the source by the
// recorded bases, reaches the source beneath one handle and never follows a
// symbolic link in either.
//
// The apply lock is held by one command at a time, also while a supervisor holds
// the sandbox's lock. Its file lists what an apply is about to touch, so that the
// next command finds what a killed one left.
package changes

import (
	"errors"
	"os"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Work is a sandbox's changes opened to be shown, applied or discarded.
type Work struct {
	Sandbox *record.Sandbox
	source  *os.File
	Tree    SourceTree // of source
	Stack   *layer.Stack
	Policy  *policy.Policy
	earlier []*policy.Policy

	room          func()       // gives the reserve back
	Lock          *record.Lock // held if stack may be changed, else nil
	ApplyLockFile string
	Elsewhere     bool                // source is not the sandbox's
	ApplyLock     *applyLock          // taken if the source or the delta may be changed, else nil
	Resumed       map[vpath.Path]bool // what a killed apply was about to touch
	// Unfinished are directories that an apply has made and has not given their
	// mode yet, and that mode.
	Unfinished map[vpath.Path]uint32
	placing    map[vpath.Path]Version // what a killed apply was about to place
	forgot     bool                   // it was killed while the delta forgot that, or after
	// Drop lets the delta forget: it, or the supervisor that has it.
	Drop     dropping
	Delta    []layer.Change // all there are, since changes was called
	NoteMade bool           // an apply says what it has made of the source
	Cleared  SizeDelta      // by how much clearing up after it made the source grow
}

// open opens the sandbox's source and layers. With readOnly it may run beside
// a supervisor, else the caller holds the lock.
func open(s *record.Sandbox, readOnly bool) (*Work, error) {
	source, err := s.Stored.Source.Open()
	if err != nil {
		return nil, err
	}
	return OpenOver(s, source, s.Stored.Source, layer.Options{ReadOnly: readOnly})
}

// OpenOver opens the sandbox's layers over the directory source, which is at, and
// closes it with the work, or now if it fails.
func OpenOver(s *record.Sandbox, source *os.File, at record.Source, o layer.Options) (*Work, error) {
	w := &Work{Sandbox: s, source: source, ApplyLockFile: record.ApplyLockFile, Resumed: map[vpath.Path]bool{}, placing: map[vpath.Path]Version{}, Unfinished: map[vpath.Path]uint32{}}
	w.Tree = SourceTree{Root: source, Owner: s.ID()}
	err := w.Compile(at)
	if err == nil {
		w.Stack, err = OpenLayers(s, source, o)
	}
	if err != nil {
		source.Close()
		return nil, err
	}
	return w, nil
}

// OpenLayers opens the sandbox's layers over source, with o and what the record says.
func OpenLayers(s *record.Sandbox, source *os.File, o layer.Options) (*layer.Stack, error) {
	var err error
	if o.User, err = record.SourceUser(); err != nil {
		return nil, err
	}
	if o.Absent, err = Absent(&s.Stored); err != nil {
		return nil, err
	}
	o.Source, o.Dir = source, s.LayersDir()
	return layer.Open(o)
}

// dropping lets a delta forget versions, as DropVersions.
type dropping = func([]Version) (stale []vpath.Path, err error)

// OpenTo opens the sandbox in order to change its source or its delta: by
// itself, or, with drop, beside a supervisor that changes the delta on request. A
// dry run changes nothing. Errors: Precondition if somebody is in the way.
func OpenTo(s *record.Sandbox, p record.LockReason, drop dropping, dryRun bool) (*Work, error) {
	return OpenBy(s, p, drop, dryRun, func(readOnly bool) (*Work, error) { return open(s, readOnly) })
}

// OpenBy is OpenTo of what open opens.
func OpenBy(s *record.Sandbox, p record.LockReason, drop dropping, dryRun bool, open func(readOnly bool) (*Work, error)) (*Work, error) {
	room := func() {}
	if !dryRun {
		room = s.Home.MakeRoom()
	}
	var lock *record.Lock
	if drop == nil && !dryRun {
		var err error
		if lock, err = s.TryLock(p); err != nil {
			room()
			return nil, err
		}
	}
	w, err := open(lock == nil)
	if err != nil {
		lock.Release()
		room()
		return nil, err
	}
	w.Lock, w.room, w.Drop = lock, room, drop
	if drop == nil {
		w.Drop = func(v []Version) ([]vpath.Path, error) { return DropVersions(w.Stack, v) }
	}
	if dryRun {
		err = w.peekApplyLock()
	} else {
		err = w.takeApplyLock()
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Close gives back what opening took: the lock, the apply lock and the layers.
func (w *Work) Close() error {
	w.releaseApplyLock()
	err := errors.Join(w.Stack.Close(), w.source.Close())
	w.Lock.Release()
	if w.room != nil {
		w.room()
	}
	return err
}

// Compile compiles the policies of now and before, with what is reserved.
// source is the directory that the changes are for.
func (w *Work) Compile(source record.Source) error {
	r := &w.Sandbox.Stored
	reserved, err := w.Sandbox.Home.Reserved(source)
	if err != nil {
		return err
	}
	o := policy.Options{Reserved: reserved}
	if w.Policy, err = policy.Compile(r.Rules, o); err != nil {
		return err
	}
	for _, rules := range r.EarlierRules {
		p, err := policy.Compile(rules, o)
		if err != nil {
			return err
		}
		w.earlier = append(w.earlier, p)
	}
	return nil
}

// OpenToRead opens the sandbox to look at its changes, without its source if that
// is lost.
func OpenToRead(s *record.Sandbox) (*Work, error) {
	source, lost, err := s.SourceToRead()
	if err != nil {
		return nil, err
	}
	return OpenOver(s, source, s.Stored.Source, layer.Options{ReadOnly: true, Elsewhere: lost})
}
