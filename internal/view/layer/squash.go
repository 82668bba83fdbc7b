package layer

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// squash merges every frozen layer into the delta, because Drop works on a single layer. No
// step changes the view. The caller holds ns exclusively; bases are the records of the
// journal.
func (s *Stack) squash(bases map[vpath.Path]Base) error {
	if len(s.layers) == 2 {
		return nil
	}
	for len(s.layers) > 2 {
		q := squashing{s: s, to: s.layers[top].root, from: s.layers[top+1].root}
		if err := q.run(); err != nil {
			return err
		}
		name := strconv.Itoa(len(s.layers) - 2)
		frozen, err := s.privateDir("frozen")
		if err != nil {
			return err
		}
		err = s.moveToGarbage(frozen, name)
		unix.Close(frozen)
		if err != nil {
			return err
		}
		unix.Close(q.from)
		s.layers = append([]*layer{s.layers[top]}, s.layers[top+2:]...)
		s.dirs.purge(vpath.Root)
	}
	return s.dropIdleWhiteouts(bases)
}

// dropIdleWhiteouts removes the whiteouts that only hid entries of frozen layers. They
// would hide files that the user makes in the source later.
func (s *Stack) dropIdleWhiteouts(bases map[vpath.Path]Base) error {
	return walkNames(s.layers[top].root, func(dir int, p vpath.Path, c storedChild) error {
		if c.kind != nameenc.KindWhiteout {
			return nil
		}
		if _, recorded := bases[p]; recorded {
			return nil
		}
		if _, err := s.SourceInfo(p); !errdefs.Is(err, errdefs.NotFound) {
			return nil
		}
		return dropWhiteout(dir, c.name)
	})
}

// squashing moves the layer from into the layer to, which is above it.
type squashing struct {
	s        *Stack
	to, from int
	visited  []merging // parents first
}

// merging is a directory that merges in both layers.
type merging struct {
	path   vpath.Path
	closed bool // nothing below the layer from shows through it
}

func (q *squashing) run() error {
	pending := []merging{{path: vpath.Root}}
	for len(pending) > 0 {
		d := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		q.visited = append(q.visited, d)
		dirs, err := q.dir(d.path)
		if err != nil {
			return err
		}
		pending = append(pending, dirs...)
	}
	for _, d := range q.visited {
		if !d.closed {
			continue
		}
		// Only now, after all its entries have moved, may it hide what is below.
		if err := q.close(d.path); err != nil {
			return err
		}
	}
	return nil
}

func (q *squashing) close(p vpath.Path) error {
	fd, err := openDirAt(q.to, nameenc.Path(p))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return makeEmpty(fd, nameenc.OpaqueMarker)
}

// dir moves the entries of the directory p of from, and returns those of its directories
// that merge with a directory of to.
func (q *squashing) dir(p vpath.Path) ([]merging, error) {
	to, err := openDirAt(q.to, nameenc.Path(p))
	if err != nil {
		return nil, err
	}
	defer unix.Close(to)
	from, err := openDirAt(q.from, nameenc.Path(p))
	if err != nil {
		return nil, err
	}
	defer unix.Close(from)
	names, err := readStored(from)
	if err != nil {
		return nil, err
	}
	var dirs []merging
	for _, c := range names {
		merge, err := q.name(to, from, c)
		if err != nil {
			return nil, err
		}
		if !merge {
			continue
		}
		stored, _ := nameenc.Entry(c.name)
		closed, err := isClosed(from, c.name, stored)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, merging{p.Child(c.name), closed})
	}
	return dirs, nil
}

// isClosed reports whether nothing of lower layers shows through the directory
// name of the delta directory dir.
func isClosed(dir int, name, stored string) (bool, error) {
	closed, err := isOpaque(dir, stored)
	if err != nil || closed {
		return closed, err
	}
	return hasWhiteout(dir, name)
}

// name moves one entry or whiteout, or leaves it if to hides it. merge reports whether it
// is a directory that merges with one of to.
func (q *squashing) name(to, from int, c storedChild) (merge bool, err error) {
	stored, _ := nameenc.Entry(c.name)
	st, err := statAt(to, stored)
	switch err {
	case nil:
		if !st.isDir() {
			return false, nil
		}
		return q.onDir(to, from, c, stored)
	case unix.ENOENT:
	default:
		return false, err
	}
	if c.kind == nameenc.KindWhiteout {
		name, _ := nameenc.Whiteout(c.name)
		return false, unix.Renameat(from, name, to, name)
	}
	hidden, err := hasWhiteout(to, c.name)
	if err != nil || hidden {
		return false, err
	}
	return false, moveStored(from, to, c.name, stored)
}

// onDir handles a name of from for which to has a directory.
func (q *squashing) onDir(to, from int, c storedChild, stored string) (merge bool, err error) {
	closed, err := isClosed(to, c.name, stored)
	if err != nil || closed {
		return false, err
	}
	if c.kind == nameenc.KindEntry && c.mode == unix.S_IFDIR {
		return true, nil
	}
	if c.kind == nameenc.KindWhiteout {
		// Beside a directory, the directory decides.
		if there, err := exists(from, stored); err != nil || there {
			return false, err
		}
	}
	return false, makeMarker(to, stored)
}

// moveStored moves an entry from one delta directory to another, where the
// name is free.
func moveStored(from, to int, name, stored string) error {
	pl := &place{dir: to, name: name}
	_, pl.hashed = nameenc.Entry(name)
	if err := pl.before(); err != nil {
		return err
	}
	if err := unix.Renameat2(from, stored, to, stored, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	return dropNameLink(from, name)
}
