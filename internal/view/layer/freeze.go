package layer

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Freeze puts an empty delta above the present one, which is never written again: a
// snapshot, in constant time. Writable files become stale: their next write fails with
// ESTALE, and opening them again copies them up. So writes through a shared mapping go to
// the new delta from then on. Errors: Exhausted, Internal.
func (s *Stack) Freeze() error {
	if err := s.writable(); err != nil {
		return wrap("freeze", vpath.Root, err)
	}
	s.ns.Lock()
	defer s.ns.Unlock()
	s.writers.Lock()
	defer s.writers.Unlock()
	return wrap("freeze", vpath.Root, s.freeze())
}

func (s *Stack) freeze() error {
	frozen, err := s.privateDir("frozen")
	if err != nil {
		return err
	}
	defer unix.Close(frozen)
	name := strconv.Itoa(lastFrozen(frozen) + 1)
	if err := unix.Renameat2(s.home, "top", frozen, name, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	fresh, err := s.newTop(s.layers[top])
	if err != nil {
		// The old delta must not be written under its new name.
		_ = unix.Renameat2(frozen, name, s.home, "top", unix.RENAME_NOREPLACE)
		return err
	}
	s.layers[top].origin = Frozen
	s.layers = append([]*layer{fresh}, s.layers...)
	s.dirs.purge(vpath.Root)
	s.gen.Add(1)
	return nil
}

// newTop makes and opens the delta's directory. It takes the root's mode and times from the
// frozen layer below, which may be nil.
func (s *Stack) newTop(below *layer) (*layer, error) {
	if err := safefs.MakePrivateDir(s.home, "top"); err != nil {
		return nil, err
	}
	fd, err := openDir(s.home, "top")
	if err != nil {
		return nil, err
	}
	if below != nil {
		st, err := statFd(below.root)
		if err == nil {
			err = s.takeAttributes(fd, ".", &st)
		}
		if err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return &layer{root: fd, origin: Delta}, nil
}

// lastFrozen returns the highest N of the directories N in frozen, 0 if none.
func lastFrozen(frozen int) int {
	last := 0
	_ = safefs.ReadNames(frozen, func(name []byte, _ uint32, _ uint64) error {
		if n, err := strconv.Atoi(string(name)); err == nil && n > last {
			last = n
		}
		return nil
	})
	return last
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
