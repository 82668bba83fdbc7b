package layer

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// ChangeKind is the way in which a path changed.
type ChangeKind uint8

// The kinds.
const (
	Created  ChangeKind = iota + 1 // the source had nothing at the path
	Modified                       // the delta has its copy or its replacement
	Deleted                        // the source has it and the view does not
)

// Change is a path at which the view differs, or may differ, from the original source. A
// file that was opened for writing but not written is Modified.
//
// A nil Base means that the sandbox did not remove the path itself. Below a deleted or
// replaced directory, the sandbox never saw the path: the policy hid it, or it is newer
// than the deletion. Elsewhere, a crash lost the record. The caller must leave such a path
// alone in both cases. A Created path has an Absent Base, which matches only if the source
// has nothing there.
type Change struct {
	Path        vpath.Path
	Kind        ChangeKind
	Info        Info // the delta's entry, or the source's if Deleted
	Base        *Base
	TypeChanged bool // Modified, and its type differs from its Base's
}

// Changes lists the changes that the layers above the source make, parents before children
// and otherwise ordered by name. It omits a directory that is in the delta only because it
// contains changes. Errors: Internal.
func (s *Stack) Changes() ([]Change, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	if s.o.KeepDirs {
		s.dirs.purge(vpath.Root)
	}
	w := changeWalk{s: s}
	err := w.run()
	return w.changes, wrap("list changes of", vpath.Root, err)
}

// HasChanges reports whether Changes would list anything. It stops at the first
// directory with a change. Errors: Internal.
func (s *Stack) HasChanges() (bool, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	w := changeWalk{s: s, first: true}
	err := w.run()
	return len(w.changes) > 0, wrap("look for changes of", vpath.Root, err)
}

// IsUntouched reports whether the layers above the source are empty, so that Changes would
// list nothing. It only looks at their top directories. Errors: Internal.
func (s *Stack) IsUntouched() (bool, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	if s.rootTouched {
		return false, nil
	}
	for n := range s.bottom() {
		fd, err := openDirAt(s.layers[n].root, nameenc.Path(vpath.Root))
		if err != nil {
			return false, wrap("look for changes of", vpath.Root, err)
		}
		stored, err := readStored(fd)
		unix.Close(fd)
		if err != nil || len(stored) > 0 {
			return false, wrap("look for changes of", vpath.Root, err)
		}
	}
	return true, nil
}

// changeWalk collects changes.
type changeWalk struct {
	s       *Stack
	bases   map[vpath.Path]Base
	changes []Change
	first   bool // stop at the first directory that has a change
}

// beneath is what a directory of a delta shows of the source.
type beneath uint8

const (
	sourceAbsent beneath = iota // the source has no such directory
	sourceShown                 // the source's directory shows through, except for whiteouts
	sourceHidden                // the directory is opaque
)

// changeDir is a directory that the walk has yet to visit: its delta layers, topmost first,
// and what the source has below.
type changeDir struct {
	path   vpath.Path
	layers []int
	source beneath
}

func (w *changeWalk) run() error {
	var err error
	if w.bases, err = w.s.journal.Bases(); err != nil {
		return err
	}
	if err := w.root(); err != nil {
		return err
	}
	all := make([]int, w.s.bottom())
	for n := range all {
		all[n] = n
	}
	pending := []changeDir{{vpath.Root, all, sourceShown}}
	for len(pending) > 0 {
		d := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		dirs, err := w.dir(d)
		if err != nil {
			return err
		}
		pending = append(pending, dirs...)
		if w.first && len(w.changes) > 0 {
			return nil
		}
	}
	if w.s.o.Elsewhere {
		if err := w.recorded(); err != nil {
			return err
		}
	}
	slices.SortFunc(w.changes, func(a, b Change) int { return comparePaths(a.Path, b.Path) })
	return nil
}

// recorded reports as deleted each recorded path that neither the source nor the view has
// now.
func (w *changeWalk) recorded() error {
	told := make(map[vpath.Path]bool, len(w.changes))
	for _, c := range w.changes {
		told[c.Path] = true
	}
	for p, base := range w.bases {
		if base.Absent || told[p] || p.IsRoot() {
			continue
		}
		_, err := w.s.lookup(p)
		if isAbsent(err) {
			w.add(Change{Path: p, Kind: Deleted, Info: Info{Mode: base.Mode, Size: base.Size, Mtime: base.Mtime, Origin: Source}, Base: &base})
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (w *changeWalk) root() error {
	base, ok := w.bases[vpath.Root]
	if !ok || w.s.bottom() == 0 {
		return nil
	}
	st, err := statFd(w.s.layers[top].root)
	if err == nil && st.mode&modeMask != base.Mode&modeMask {
		w.add(Change{Path: vpath.Root, Kind: Modified, Info: w.s.info(vpath.Root, Delta, &st), Base: &base})
	}
	return err
}

func (w *changeWalk) add(c Change) { w.changes = append(w.changes, c) }

// decision is the combined effect of the delta layers on a name.
type decision struct {
	deleted bool
	layers  []int // for a directory all layers that merge, else the one that has the name
	isDir   bool
	st      stat // of the topmost layer
	closed  bool // lower layers no longer count
}

func (w *changeWalk) dir(d changeDir) ([]changeDir, error) {
	names := map[string]*decision{}
	for _, n := range d.layers {
		if err := w.decide(names, d.path, n); err != nil {
			return nil, err
		}
	}
	source := -1
	if d.source != sourceAbsent {
		fd, err := w.s.sourceDirAt(d.path)
		if err == nil {
			defer unix.Close(fd)
			source = fd
		} else if !isAbsent(err) {
			return nil, err
		}
	}
	var dirs []changeDir
	for name, dec := range names {
		sub, err := w.name(d, source, name, dec)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, sub...)
	}
	if d.source == sourceHidden && source >= 0 {
		err := w.hidden(d, source, names)
		if err == unix.EACCES {
			err = nil // never seen by the sandbox
		}
		return dirs, err
	}
	return dirs, nil
}

// decide adds the effect of layer n on the names in directory p.
func (w *changeWalk) decide(names map[string]*decision, p vpath.Path, n int) error {
	fd, err := openDirAt(w.s.layers[n].root, nameenc.Path(p))
	if err != nil {
		return orAbsent(err)
	}
	defer unix.Close(fd)
	stored, err := readStored(fd)
	if err != nil {
		return err
	}
	for _, c := range stored {
		if c.kind != nameenc.KindEntry {
			continue
		}
		if err := w.decideEntry(names, fd, n, c.name); err != nil {
			return err
		}
	}
	for _, c := range stored {
		if c.kind != nameenc.KindWhiteout {
			continue
		}
		if dec, ok := names[c.name]; ok {
			dec.closed = true
		} else {
			names[c.name] = &decision{deleted: true, closed: true}
		}
	}
	return nil
}

func (w *changeWalk) decideEntry(names map[string]*decision, dir, n int, name string) error {
	dec, known := names[name]
	if known && dec.closed {
		return nil
	}
	stored, _ := nameenc.Entry(name)
	st, err := statAt(dir, stored)
	if err != nil {
		return orAbsent(err)
	}
	if !known {
		dec = &decision{st: st, isDir: st.isDir(), closed: !st.isDir()}
		names[name] = dec
	}
	if dec.isDir != st.isDir() {
		dec.closed = true
		return nil
	}
	dec.layers = append(dec.layers, n)
	if dec.isDir {
		if dec.closed, err = isOpaque(dir, stored); err != nil {
			return orAbsent(err)
		}
	}
	return nil
}

// name reports one name of the delta and returns it if it is a directory.
func (w *changeWalk) name(d changeDir, source int, name string, dec *decision) ([]changeDir, error) {
	p := d.path.Child(name)
	below, err := w.below(source, name, p)
	if err != nil {
		return nil, err
	}
	if dec.deleted {
		if below == nil || d.source == sourceHidden {
			return nil, nil // hidden reports the deletion
		}
		return nil, w.deleted(p, below)
	}
	w.entry(p, dec)
	dirBelow := below != nil && below.isDir() && !below.mounted
	if !dec.isDir {
		if dirBelow {
			return nil, w.deletedBelow(p)
		}
		return nil, nil
	}
	sub := changeDir{path: p, layers: dec.layers, source: sourceAbsent}
	switch {
	case dirBelow && (d.source == sourceHidden || dec.closed):
		sub.source = sourceHidden
	case dirBelow:
		sub.source = sourceShown
	}
	return []changeDir{sub}, nil
}

// below returns the source's entry at p, or nil if none shows.
func (w *changeWalk) below(source int, name string, p vpath.Path) (*stat, error) {
	if source < 0 || vpath.IsOwnName(name) {
		return nil, nil
	}
	st, err := statAt(source, name)
	if err != nil {
		return nil, orAbsent(err)
	}
	if absent := w.s.o.Absent; absent != nil && absent(p, st.isDir()) {
		return nil, nil
	}
	return &st, nil
}

// entry reports an entry of the delta, unless it is a directory that only contains changes.
func (w *changeWalk) entry(p vpath.Path, dec *decision) {
	c := Change{Path: p, Kind: Created, Base: &Base{Absent: true}}
	c.Info = w.s.info(p, w.s.layers[dec.layers[0]].origin, &dec.st)
	if base, ok := w.bases[p]; ok {
		c.Kind, c.Base = Modified, &base
		c.TypeChanged = base.Mode&typeMask != dec.st.kind()
		if dec.isDir && !c.TypeChanged && base.Mode&modeMask == dec.st.mode&modeMask {
			return
		}
	}
	w.add(c)
}

// hidden reports as deleted the source's entries in an opaque directory.
func (w *changeWalk) hidden(d changeDir, source int, names map[string]*decision) error {
	return safefs.ReadNames(source, func(raw []byte, _ uint32, _ uint64) error {
		name := string(raw)
		if dec, ok := names[name]; ok && !dec.deleted {
			return nil
		}
		st, err := statAt(source, name)
		if err != nil {
			return orAbsent(err)
		}
		return w.deleted(d.path.Child(name), &st)
	})
}

// deleted reports the source's entry p as deleted, with everything below it.
func (w *changeWalk) deleted(p vpath.Path, st *stat) error {
	c := Change{Path: p, Kind: Deleted, Info: w.s.info(p, Source, st)}
	if base, ok := w.bases[p]; ok {
		c.Base = &base
	}
	w.add(c)
	if !st.isDir() || st.mounted {
		return nil
	}
	return w.deletedBelow(p)
}

// deletedBelow reports everything that the source has below p as deleted.
func (w *changeWalk) deletedBelow(p vpath.Path) error {
	pending := []vpath.Path{p}
	for len(pending) > 0 {
		dir := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		fd, err := w.s.sourceDirAt(dir)
		if err != nil {
			if isAbsent(err) || err == unix.EXDEV || err == unix.EACCES {
				continue // removed meanwhile, or never seen by the sandbox
			}
			return err
		}
		err = safefs.ReadNames(fd, func(raw []byte, _ uint32, _ uint64) error {
			st, err := statAt(fd, string(raw))
			if err != nil {
				return orAbsent(err)
			}
			q := dir.Child(string(raw))
			c := Change{Path: q, Kind: Deleted, Info: w.s.info(q, Source, &st)}
			if base, ok := w.bases[q]; ok {
				c.Base = &base
			}
			w.add(c)
			if st.isDir() && !st.mounted {
				pending = append(pending, q)
			}
			return nil
		})
		unix.Close(fd)
		if err != nil && err != unix.EACCES {
			return err
		}
	}
	return nil
}

func isAbsent(err error) bool {
	return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP
}

// orAbsent returns nil for the error of an entry that was removed during the walk.
func orAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}

// comparePaths orders parents before children and siblings by their bytes.
func comparePaths(a, b vpath.Path) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] == b[i] {
			continue
		}
		if a[i] == '/' {
			return -1
		}
		if b[i] == '/' {
			return 1
		}
		return int(a[i]) - int(b[i])
	}
	return len(a) - len(b)
}
