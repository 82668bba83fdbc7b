package sandbox

import (
	"errors"
	"os"

	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// work is a sandbox's changes opened to be shown, applied or discarded.
type work struct {
	sandbox *Sandbox
	source  *os.File
	tree    sourceTree // of source
	stack   *layer.Stack
	policy  *policy.Policy
	earlier []*policy.Policy

	room      func() // gives the reserve back
	lock      *Lock  // held if stack may be changed, else nil
	turnFile  string
	elsewhere bool                // source is not the sandbox's
	turn      *turn               // taken if the source or the delta may be changed, else nil
	resumed   map[vpath.Path]bool // what a killed apply was about to touch
	// unfinished are directories that an apply has made and has not given their
	// mode yet, and that mode.
	unfinished map[vpath.Path]uint32
	placing    map[vpath.Path]Version // what a killed apply was about to place
	forgot     bool                   // it was killed while the delta forgot that, or after
	// drop lets the delta forget: it, or the supervisor that has it.
	drop     dropping
	delta    []layer.Change // all there are, since changes was called
	marker   *marker        // nil until a mark is asked for
	noteMade bool           // an apply says what it has made of the source
	cleared  Growth         // by how much clearing up after it made the source grow
}

// open opens the sandbox's source and layers. With readOnly it may run beside
// a supervisor, else the caller holds the lock.
func (s *Sandbox) open(readOnly bool) (*work, error) {
	source, err := s.record.Source.Open()
	if err != nil {
		return nil, err
	}
	return s.openOver(source, s.record.Source, layer.Options{ReadOnly: readOnly})
}

// openOver opens the sandbox's layers over the directory source, which is at, and
// closes it with the work, or now if it fails.
func (s *Sandbox) openOver(source *os.File, at Source, o layer.Options) (*work, error) {
	w := &work{sandbox: s, source: source, turnFile: turnFile, resumed: map[vpath.Path]bool{}, placing: map[vpath.Path]Version{}, unfinished: map[vpath.Path]uint32{}}
	w.tree = sourceTree{root: source, owner: s.ID()}
	err := w.compile(at)
	if err == nil {
		w.stack, err = s.openLayers(source, o)
	}
	if err != nil {
		source.Close()
		return nil, err
	}
	return w, nil
}

// OpenLayers opens the sandbox's layers over its source.
func (s *Sandbox) OpenLayers(source *os.File, readOnly bool) (*layer.Stack, error) {
	return s.openLayers(source, layer.Options{ReadOnly: readOnly})
}

// openLayers adds to o what the record says.
func (s *Sandbox) openLayers(source *os.File, o layer.Options) (*layer.Stack, error) {
	var err error
	if o.User, err = sourceUser(); err != nil {
		return nil, err
	}
	if o.Absent, err = s.record.Absent(); err != nil {
		return nil, err
	}
	o.Source, o.Dir = source, s.LayersDir()
	return layer.Open(o)
}

// dropping lets a delta forget versions, as DropVersions.
type dropping = func([]Version) (stale []vpath.Path, err error)

// openTo opens the sandbox in order to change its source or its delta: by
// itself, or, with drop, beside a supervisor that changes the delta on request. A
// dry run changes nothing. Errors: Precondition if somebody is in the way.
func (s *Sandbox) openTo(p Purpose, drop dropping, dryRun bool) (*work, error) {
	return s.openBy(p, drop, dryRun, s.open)
}

// openBy is openTo of what open opens.
func (s *Sandbox) openBy(p Purpose, drop dropping, dryRun bool, open func(readOnly bool) (*work, error)) (*work, error) {
	room := func() {}
	if !dryRun {
		room = s.home.MakeRoom()
	}
	var lock *Lock
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
	w.lock, w.room, w.drop = lock, room, drop
	if drop == nil {
		w.drop = func(v []Version) ([]vpath.Path, error) { return DropVersions(w.stack, v) }
	}
	if dryRun {
		err = w.peekTurn()
	} else {
		err = w.takeTurn()
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *work) close() error {
	w.giveTurnUp()
	err := errors.Join(w.stack.Close(), w.source.Close())
	w.lock.Release()
	if w.room != nil {
		w.room()
	}
	return err
}

// compile compiles the policies of now and before, with what is reserved.
// source is the directory that the changes are for.
func (w *work) compile(source Source) error {
	r := &w.sandbox.record
	reserved, err := w.sandbox.home.Reserved(source)
	if err != nil {
		return err
	}
	o := policy.Options{Reserved: reserved}
	if w.policy, err = policy.Compile(r.Rules, o); err != nil {
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
