// Package changes opens the changes of a sandbox together with its source, to show, apply
// or discard them. It compares the delta with the source by the recorded bases, accesses
// the source beneath one handle and never follows a symbolic link.
//
// One command at a time holds the apply lock, also while a supervisor holds the sandbox's
// lock. Its file lists the paths that an apply will change, so that the next command finds
// the leftovers of a killed one.
package changes

import (
	"cmp"
	"errors"
	"os"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Work is the open changes of a sandbox.
type Work struct {
	Sandbox *record.Sandbox
	source  *os.File
	Tree    SourceTree // of source
	Stack   *layer.Stack
	Policy  *policy.Policy
	earlier []*policy.Policy

	room          func()       // restores the reserve
	Lock          *record.Lock // held if Stack may be changed, else nil
	ApplyLockFile string
	Elsewhere     bool                // the source is not the sandbox's
	ApplyLock     *applyLock          // held if the source or the delta may be changed, else nil
	Resumed       map[vpath.Path]bool // paths that a killed apply listed
	// Unfinished has the directories that an apply has made without their final mode, with
	// that mode.
	Unfinished map[vpath.Path]uint32
	placing    map[vpath.Path]Version // entries that a killed apply may have placed
	forgot     bool                   // it was killed when the delta had begun to drop them
	journaled  bool                   // it had a journal
	// Drop drops versions from the delta, directly or through the supervisor.
	Drop     dropping
	Delta    []layer.Change // all changes, after a call of Changes
	NoteMade bool           // an apply sets Version.Made
	Cleared  SizeDelta      // the growth of the source by clearing up
}

// open opens the sandbox's source and layers. With readOnly a supervisor may run; otherwise
// the caller holds the lock.
func open(s *record.Sandbox, readOnly bool) (*Work, error) {
	source, err := s.Stored.Source.Open()
	if err != nil {
		return nil, err
	}
	return OpenOver(s, source, s.Stored.Source, layer.Options{ReadOnly: readOnly})
}

// OpenOver opens the sandbox's layers over the directory source, which at describes.
// Work.Close closes source, as does OpenOver on an error.
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

// OpenLayers opens the sandbox's layers over source, with o and the options from the
// record.
func OpenLayers(s *record.Sandbox, source *os.File, o layer.Options) (*layer.Stack, error) {
	var err error
	if o.User, err = rights.SourceUser(); err != nil {
		return nil, err
	}
	if o.Absent, err = Absent(&s.Stored); err != nil {
		return nil, err
	}
	o.Source, o.Store, o.Plain = source, s.Home.LayerStore(), s.Mount() != ""
	o.Dir = cmp.Or(o.Dir, s.LayersDir())
	return layer.Open(o)
}

// bytesPerInode is how many bytes a limit of the disk must leave for each inode where these have no
// limit of their own: a quarter of what the smallest file takes that is not empty. Else empty ones
// could take all that the host has.
const bytesPerInode = 1 << 10

// QuotaOf returns the limit of what the sandbox's layers store.
func QuotaOf(r *record.Record) layer.Quota {
	limits := r.Limits
	return layer.Quota{Bytes: limits.DiskBytes, Inodes: cmp.Or(limits.DiskInodes, limits.DiskBytes/bytesPerInode)}
}

// dropping drops versions from a delta, like DropVersions.
type dropping = func([]Version) (stale []vpath.Path, err error)

// OpenTo opens the sandbox to change its source or its delta: directly or, with drop, while
// a supervisor runs, which changes the delta on request. A dry run changes nothing. Errors:
// Precondition if another process holds a lock.
func OpenTo(s *record.Sandbox, p record.LockReason, drop dropping, dryRun bool) (*Work, error) {
	return OpenBy(s, p, drop, dryRun, func(readOnly bool) (*Work, error) { return open(s, readOnly) })
}

// OpenBy is OpenTo with another function to open the work.
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

// Close releases the lock, the apply lock and the layers.
func (w *Work) Close() error {
	w.releaseApplyLock()
	err := errors.Join(w.Stack.Close(), w.source.Close())
	w.Lock.Release()
	if w.room != nil {
		w.room()
	}
	return err
}

// Compile compiles the present and the earlier policies, with the reserved paths. source is
// the directory that the changes are for.
func (w *Work) Compile(source record.Source) error {
	r := &w.Sandbox.Stored
	reserved, err := w.Sandbox.Reserved(source)
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

// MayWrite reports whether the present policy permits a change of p. What a grant for a time, or a
// person's answer, permitted may be applied after its end.
func (w *Work) MayWrite(p vpath.Path) bool {
	permission := w.Policy.Decide(p).Permission
	return permission >= policy.Write || permission == policy.Read && w.Sandbox.Stored.WasGranted(p)
}

// OpenToRead opens the sandbox to read its changes, without its source if that is lost.
func OpenToRead(s *record.Sandbox) (*Work, error) {
	source, lost, err := s.SourceToRead()
	if err != nil {
		return nil, err
	}
	return OpenOver(s, source, s.Stored.Source, layer.Options{ReadOnly: true, KeepDirs: true, Elsewhere: lost})
}

// OpenState opens a state of the sandbox to read it, without its source if that is lost. dir is the
// directory of its layers, also of a frozen one; "" is the source without changes.
func OpenState(s *record.Sandbox, dir string) (*Work, error) {
	source, lost, err := s.SourceToRead()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		empty, err := s.Home.EmptyDir()
		if err != nil {
			source.Close()
			return nil, err
		}
		defer empty.Close()
		dir = safefs.ProcPath(int(empty.Fd()))
	}
	return OpenOver(s, source, s.Stored.Source, layer.Options{ReadOnly: true, KeepDirs: true, Elsewhere: lost, Dir: dir})
}
