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

	room    func()              // gives the reserve back
	lock    *Lock               // held if stack may be changed, else nil
	turn    *turn               // taken if the source or the delta may be changed, else nil
	resumed map[vpath.Path]bool // what a killed apply was about to touch
	// unfinished are directories that an apply has made and has not given their
	// mode yet, and that mode.
	unfinished map[vpath.Path]uint32
	delta      []layer.Change // all there are, since changes was called
	marker     *marker        // nil until a mark is asked for
	cleared    Growth         // by how much clearing up after it made the source grow
}

// open opens the sandbox's source and layers. With readOnly it may run beside
// a supervisor, else the caller holds the lock.
func (s *Sandbox) open(readOnly bool) (*work, error) {
	w := &work{sandbox: s, resumed: map[vpath.Path]bool{}, unfinished: map[vpath.Path]uint32{}}
	if err := w.compile(); err != nil {
		return nil, err
	}
	var err error
	if w.source, err = s.record.Source.Open(); err != nil {
		return nil, err
	}
	w.tree = sourceTree{root: w.source, owner: s.ID()}
	w.stack, err = s.OpenLayers(w.source, readOnly)
	if err != nil {
		w.source.Close()
		return nil, err
	}
	return w, nil
}

// OpenLayers opens the sandbox's layers over its source.
func (s *Sandbox) OpenLayers(source *os.File, readOnly bool) (*layer.Stack, error) {
	user, err := sourceUser()
	if err != nil {
		return nil, err
	}
	absent, err := s.record.Absent()
	if err != nil {
		return nil, err
	}
	return layer.Open(layer.Options{Source: source, Dir: s.LayersDir(), ReadOnly: readOnly, User: user, Absent: absent})
}

// openTo opens the sandbox in order to change its source or its delta: by
// itself, or live, beside a supervisor that changes the delta on request. A
// dry run changes nothing. Errors: Precondition if somebody is in the way.
func (s *Sandbox) openTo(p Purpose, live, dryRun bool) (*work, error) {
	room := func() {}
	if !dryRun {
		room = s.home.MakeRoom()
	}
	var lock *Lock
	if !live && !dryRun {
		var err error
		if lock, err = s.TryLock(p); err != nil {
			room()
			return nil, err
		}
	}
	w, err := s.open(lock == nil)
	if err != nil {
		lock.Release()
		room()
		return nil, err
	}
	w.lock, w.room = lock, room
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
	w.turn.end()
	err := errors.Join(w.stack.Close(), w.source.Close())
	w.lock.Release()
	if w.room != nil {
		w.room()
	}
	return err
}

// compile compiles the policies of now and before, with what is reserved.
func (w *work) compile() error {
	r := &w.sandbox.record
	reserved, err := w.sandbox.home.Reserved(r.Source)
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
