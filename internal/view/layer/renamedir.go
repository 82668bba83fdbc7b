package layer

import (
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// copyWorkers is how many files are copied up at once. The workers mostly wait for the
// disk, which commits their writes together.
const copyWorkers = 8

// bringUp copies p up, a directory with everything that moves with it. The view does not
// change. Errors: EXDEV beyond the bounds.
func (s *Stack) bringUp(p vpath.Path, o *RenameOptions) error {
	if err := s.copyUp(p, -1); err != nil {
		return err
	}
	s.ns.RLock()
	i, err := s.lookup(p)
	s.ns.RUnlock()
	if err != nil || !i.IsDir() {
		return err
	}
	s.ns.RLock()
	todo, err := s.lowerEntries(p, o)
	s.ns.RUnlock()
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(copyWorkers)
	for _, q := range todo {
		g.Go(func() error {
			err := s.copyUp(q, -1)
			if err == unix.ENOENT || err == unix.ENOTDIR {
				return nil // removed meanwhile; the check under the lock decides
			}
			return err
		})
	}
	return g.Wait()
}

// bringUpBoth copies up what a rename needs in the delta.
func (s *Stack) bringUpBoth(old, p vpath.Path, o *RenameOptions) error {
	if err := s.bringUp(old, o); err != nil || !o.Exchange {
		return err
	}
	return s.bringUp(p, o)
}

// lowerEntries returns the entries that move with the directory p and are not in the delta
// yet, parents first. The caller holds ns. Errors: EXDEV if they exceed the bounds, if an
// entry of the delta would have to stay, or if there is a nested mount or a device among
// them.
func (s *Stack) lowerEntries(p vpath.Path, o *RenameOptions) ([]vpath.Path, error) {
	b := bounds{entries: o.MaxEntries, bytes: o.MaxBytes}
	b.setDefaults()
	var todo []vpath.Path
	pending := []vpath.Path{p}
	for len(pending) > 0 {
		dir := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		v, err := s.mergedDir(dir)
		if err != nil {
			return nil, err
		}
		dirs, missing, err := s.lowerChildren(v, o, &b)
		if len(missing) > 0 && err == nil {
			err = v.mayMoveWhole()
		}
		s.dirs.release(v)
		if err != nil {
			return nil, err
		}
		pending = append(pending, dirs...)
		todo = append(todo, missing...)
	}
	return todo, nil
}

// bounds counts down what may still be copied.
type bounds struct {
	entries int
	bytes   int64
}

func (b *bounds) setDefaults() {
	if b.entries == 0 {
		b.entries = DefaultRenameEntries
	}
	if b.bytes == 0 {
		b.bytes = DefaultRenameBytes
	}
}

// take counts one entry of the given size. Errors: EXDEV.
func (b *bounds) take(bytes int64) error {
	b.entries--
	b.bytes -= bytes
	if b.entries < 0 || b.bytes < 0 {
		return unix.EXDEV
	}
	return nil
}

// lowerChildren returns the directories in v to descend into, and the entries of v that the
// delta does not have.
func (s *Stack) lowerChildren(v *mergedDir, o *RenameOptions, b *bounds) (dirs, missing []vpath.Path, err error) {
	if o.Visible == nil && len(v.parts) == 1 && v.inTop() {
		return nil, nil, nil // only the delta has the directory, and everything may move
	}
	var children []child
	if err := s.list(v, func(c child) { children = append(children, c) }); err != nil {
		return nil, nil, err
	}
	for _, c := range children {
		p := v.path.Child(c.name)
		if !o.visible(p) {
			if c.layer == top {
				return nil, nil, unix.EXDEV
			}
			continue
		}
		if c.mode == unix.S_IFDIR {
			dirs = append(dirs, p)
		}
		if c.layer == top {
			continue
		}
		if err := s.canCopy(v, c, b); err != nil {
			return nil, nil, err
		}
		missing = append(missing, p)
	}
	return dirs, missing, nil
}

func (s *Stack) canCopy(v *mergedDir, c child, b *bounds) error {
	e, err := s.find(v, c.name, top)
	if err != nil {
		return err
	}
	kind := e.st.kind()
	if e.st.mounted && e.part.origin == Source || kind == unix.S_IFCHR || kind == unix.S_IFBLK {
		return unix.EXDEV
	}
	return b.take(min(e.st.size, e.st.blocks*blockBytes))
}
