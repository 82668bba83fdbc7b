package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Freeze puts an empty delta above the present one, which is never written again: a
// snapshot, in constant time. It returns the name of the frozen layer, which Options.Store then
// has, or of the one that is already below an empty delta; "" if the stack shows the source.
// Writable files become stale: their next write fails with
// ESTALE, and opening them again copies them up. So writes through a shared mapping go to
// the new delta from then on. Errors: Exhausted; Unsupported if the file system cannot exchange
// two directories; Internal.
func (s *Stack) Freeze() (frozen string, err error) {
	if err := s.writable(); err != nil {
		return "", wrap("freeze", vpath.Root, err)
	}
	s.ns.Lock()
	defer s.ns.Unlock()
	s.writers.Lock()
	defer s.writers.Unlock()
	if empty, err := s.isTopEmpty(); err != nil || empty {
		return s.below(), wrap("freeze", vpath.Root, err)
	}
	if err := s.squashMany(maxFrozenLive); err != nil {
		return "", wrap("freeze", vpath.Root, err)
	}
	if err := s.freeze(); err != nil {
		return "", wrap("freeze", vpath.Root, err)
	}
	return s.below(), nil
}

// below returns the name of the highest frozen layer, or "".
func (s *Stack) below() string {
	if l := s.layers[top+1]; l.origin == Frozen {
		return l.name
	}
	return ""
}

// isTopEmpty reports whether the delta says nothing that the layers below do not say.
func (s *Stack) isTopEmpty() (bool, error) {
	empty, err := isEmptyDelta(s.layers[top].root)
	if err != nil || !empty {
		return false, err
	}
	if below := s.layers[top+1]; below.origin == Frozen {
		return hasSameMode(s.layers[top].root, below.root)
	}
	return !s.rootTouched, nil
}

// freeze makes the new delta beside the frozen layers and then exchanges the two directories, in
// one step.
func (s *Stack) freeze() error {
	store, err := openStore(s.o.Store)
	if err != nil {
		return err
	}
	defer unix.Close(store)
	name := newLayerName()
	home, fresh, err := makeHead(store, name, name, s.layers[top].root)
	if err != nil {
		return err
	}
	next, err := journal.Prepare(home)
	if err == nil {
		if err = exchange(store, name, s.home, s.o.Dir); err != nil {
			next.Abandon()
		}
	}
	if err != nil {
		unix.Close(fresh)
		unix.Close(home)
		discardLayer(store, name)
		return err
	}
	// What is unfinished, or has no name, stays ours. If it cannot move, it is used where it is.
	_ = takeUnfinished(s.home, home)
	frozen := s.home
	s.home = home
	s.layers[top].origin, s.layers[top].name, s.layers[top].home = Frozen, name, frozen
	s.layers = append([]*layer{{root: fresh, origin: Delta}}, s.layers...)
	s.dirs.purge(vpath.Root)
	s.gen.Add(1)
	s.quota.settleDir(vpath.Root, fresh)
	return s.journal.Freeze(next, frozen)
}

// linkFrozenNames links the copy at pl of the frozen file st to its other names that the
// view still shows, so that the names stay names of one file.
func (s *Stack) linkFrozenNames(p vpath.Path, layer int, st *stat, pl *place) error {
	names, err := s.frozenNames(layer, st.ino)
	if err != nil {
		return err
	}
	for _, q := range names {
		if q == p {
			continue
		}
		v, e, err := s.locate(q)
		if err != nil {
			continue // hidden since
		}
		s.dirs.release(v)
		if e.part.layer != layer || e.st.ino != st.ino {
			continue
		}
		if err := s.linkFrozenName(q, pl); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) linkFrozenName(q vpath.Path, pl *place) error {
	up, err := s.ensureDir(q.Dir())
	if err != nil {
		return err
	}
	defer s.dirs.release(up)
	to := newPlace(up, q)
	if err := to.before(); err != nil {
		return err
	}
	s.links.touch(q)
	return keepingTimes(to.dir, func() error {
		return unix.Linkat(pl.dir, pl.stored, to.dir, to.stored, 0)
	})
}

// frozenNames returns the names of a file in a frozen layer. It walks the layer once, when
// the first file with several names is copied up.
func (s *Stack) frozenNames(n int, ino uint64) ([]vpath.Path, error) {
	l := s.layers[n]
	if l.links == nil {
		links := map[uint64][]vpath.Path{}
		err := walkNames(l.root, func(dir int, p vpath.Path, c storedChild) error {
			if c.kind != nameenc.KindEntry || c.mode == unix.S_IFDIR {
				return nil
			}
			stored, _ := nameenc.Entry(c.name)
			st, err := statAt(dir, stored)
			if err == nil && st.nlink > 1 {
				links[st.ino] = append(links[st.ino], p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		l.links = links
	}
	return l.links[ino], nil
}
