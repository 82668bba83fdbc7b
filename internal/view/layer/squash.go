package layer

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// A stack with more frozen layers than this merges them when it is opened, and before the
// next freeze. A name that no layer has costs two lookups in each.
const (
	maxFrozen     = 16
	maxFrozenLive = 64
)

// squashMany squashes the stack if it has more than most frozen layers.
func (s *Stack) squashMany(most int) error {
	if len(s.layers)-2 <= most || s.mustShare() {
		return nil
	}
	bases, err := s.journal.Bases()
	if err != nil {
		return err
	}
	err = s.squash(bases, nil)
	if safefs.IsFull(err) {
		return nil // what was copied is like what is below: another time goes on
	}
	return err
}

// squash copies what every frozen layer says into the delta, because Drop works on a single
// layer, and then has the delta lie on the source. It shares the blocks of files where the file
// system can. Frozen layers stay as they are, for others. No step changes the view, but for the
// entries of frozen layers at the paths of leave, which it does not copy: they go with the layers.
// The caller holds ns exclusively; bases are the records of the journal.
func (s *Stack) squash(bases map[vpath.Path]Base, leave []vpath.Path) error {
	frozen := s.frozen()
	if len(frozen) == 0 {
		return nil
	}
	q := squashing{s: s, to: s.layers[top].root, left: map[vpath.Path]bool{}, linked: map[uint64]string{}}
	if err := q.leave(leave, frozen); err != nil {
		return err
	}
	s.journal.Defer()
	err := q.all(frozen)
	q.close()
	if err := errors.Join(err, s.journal.FlushDeferred()); err != nil {
		return err
	}
	failpoint.At("squash: copied")
	if err := s.journal.Merge(); err != nil {
		return err
	}
	failpoint.At("squash: merged")
	if err := s.keepLineage(frozen); err != nil {
		return err
	}
	if err := safefs.Unlink(s.home, belowName); err != nil {
		return err
	}
	s.journal.ForgetBelow()
	err = s.uncount(frozen)
	for _, l := range frozen {
		l.close()
	}
	s.links.forget()
	s.layers = []*layer{s.layers[top], s.layers[s.bottom()]}
	s.dirs.purge(vpath.Root)
	return errors.Join(err, s.dropIdleWhiteouts(bases))
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

// squashing copies the layer from, of the number n, into the layer to, which is above it.
type squashing struct {
	s        *Stack
	to, from int
	n        int
	visited  []merging           // parents first
	left     map[vpath.Path]bool // paths that are not copied, see leave; true: a layer had an entry there
	linked   map[uint64]string   // copies in work of files with several names, by the original
}

// merging is a directory that merges in both layers.
type merging struct {
	path   vpath.Path
	closed bool // nothing below the layer from shows through it
	times  stat // what the directory of to shows when all is copied
}

// leave notes the paths that are not copied: not those below a directory that a frozen layer
// closes, because the copy of that directory hides the layers before they go.
func (q *squashing) leave(paths []vpath.Path, frozen []*layer) error {
	closed := map[vpath.Path]bool{vpath.Root: false}
	for _, p := range paths {
		q.left[p] = false
		for dir := range p.Ancestors() {
			hides, known := closed[dir]
			if !known {
				var err error
				if hides, err = closes(frozen, dir); err != nil {
					return err
				}
				closed[dir] = hides
			}
			if hides {
				delete(q.left, p)
				break
			}
		}
	}
	return nil
}

// closes reports whether one of the layers hides what lower ones have in the directory p.
func closes(layers []*layer, p vpath.Path) (bool, error) {
	for _, l := range layers {
		dir, err := openDirAt(l.root, nameenc.Path(p.Dir()))
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		hides, err := closesIn(dir, p.Base())
		unix.Close(dir)
		if hides || err != nil {
			return hides, err
		}
	}
	return false, nil
}

// closesIn is closes for the delta directory dir of one layer.
func closesIn(dir int, name string) (bool, error) {
	if hidden, err := hasWhiteout(dir, name); hidden || err != nil {
		return hidden, err
	}
	stored, _ := nameenc.Entry(name)
	st, err := statAt(dir, stored)
	if err != nil || !st.isDir() {
		return err == nil, orAbsent(err)
	}
	return isOpaque(dir, stored)
}

func (q *squashing) all(frozen []*layer) error {
	for i, l := range frozen {
		q.from, q.n = l.root, top+1+i
		if err := q.run(); err != nil {
			return err
		}
	}
	return nil
}

func (q *squashing) run() error {
	q.visited = q.visited[:0]
	st, err := statFd(q.to)
	if err != nil {
		return err
	}
	pending := []merging{{path: vpath.Root, times: st}}
	for len(pending) > 0 {
		d := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		q.visited = append(q.visited, d)
		dirs, err := q.dir(d.path)
		if err != nil {
			return err
		}
		failpoint.At("squash: directory copied")
		pending = append(pending, dirs...)
	}
	for _, d := range q.visited {
		// Only now, after all its entries were copied, may it hide what is below.
		if err := q.finish(&d); err != nil {
			return err
		}
	}
	return nil
}

// finish closes the directory, if from's is closed, and gives it its times.
func (q *squashing) finish(d *merging) error {
	fd, err := openDirAt(q.to, nameenc.Path(d.path))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if d.closed {
		if err := makeEmpty(fd, nameenc.OpaqueMarker); err != nil {
			return err
		}
	}
	return setTimes(fd, ".", &d.times.atime, &d.times.mtime)
}

// dir copies the entries of the directory p of from, and returns those of its directories
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
		merge, times, err := q.name(to, from, p.Child(c.name), c)
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
		dirs = append(dirs, merging{p.Child(c.name), closed, times})
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

// name copies one entry or whiteout, unless to hides it. merge reports whether it is a directory
// that merges with one of to, which then shows times.
func (q *squashing) name(to, from int, p vpath.Path, c storedChild) (merge bool, times stat, err error) {
	stored, _ := nameenc.Entry(c.name)
	st, err := statAt(to, stored)
	if err == nil {
		if st.isDir() {
			merge, err = q.onDir(to, from, c, stored)
		}
		return merge, st, err
	}
	if err != unix.ENOENT {
		return false, st, err
	}
	hidden, err := hasWhiteout(to, c.name)
	if err != nil || hidden {
		return false, st, err
	}
	return q.onNothing(to, from, p, c, stored)
}

// onNothing handles a name of from that to neither has nor hides.
func (q *squashing) onNothing(to, from int, p vpath.Path, c storedChild, stored string) (merge bool, st stat, err error) {
	st, err = statAt(from, stored)
	isEntry := err == nil
	switch {
	case err != nil && err != unix.ENOENT:
		return false, st, err
	case q.leaves(p, isEntry && !st.isDir()):
		return false, st, nil
	case !isEntry:
		return false, st, q.s.makeWhiteout(to, c.name)
	case c.kind == nameenc.KindWhiteout: // beside an entry, which decides
		return false, st, nil
	case st.isDir():
		return true, st, q.makeDir(to, p, &st)
	}
	if err := q.copy(to, from, p, &st, stored); err != nil {
		return false, st, err
	}
	beside, err := hasWhiteout(from, c.name)
	if err == nil && beside {
		err = q.s.makeWhiteout(to, c.name)
	}
	return false, st, err
}

// leaves reports whether nothing is copied at p. If a layer has a file there that is left, lower
// layers do not count either.
func (q *squashing) leaves(p vpath.Path, isFile bool) bool {
	had, leave := q.left[p]
	if leave && isFile {
		q.left[p] = true
	}
	return had || leave && isFile
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

// makeDir makes a directory in to that merges with the one of from, which st describes.
func (q *squashing) makeDir(to int, p vpath.Path, st *stat) error {
	temp := q.s.temp()
	if err := unix.Mkdirat(q.s.work, temp, 0o700); err != nil {
		return err
	}
	return q.place(to, p, st, temp)
}

// copy copies the file st, which is stored in the directory from, to p in the directory to.
func (q *squashing) copy(to, from int, p vpath.Path, st *stat, stored string) error {
	if st.nlink < 2 {
		temp, err := q.s.copyFrozen(from, stored, st)
		if err != nil {
			return err
		}
		return q.place(to, p, st, temp)
	}
	kept, ok := q.linked[st.ino]
	if !ok {
		var err error
		if kept, err = q.s.copyFrozen(from, stored, st); err != nil {
			return err
		}
		if err := q.attribute(kept, st); err != nil {
			return err
		}
		q.linked[st.ino] = kept
	}
	pl := placeAt(to, p)
	err := pl.before()
	if err == nil {
		err = unix.Linkat(q.s.work, kept, to, pl.stored, 0)
	}
	if ok || err != nil {
		return err
	}
	return q.otherNames(p, st)
}

// place gives the copy temp in work, of what st describes, its name.
func (q *squashing) place(to int, p vpath.Path, st *stat, temp string) error {
	err := q.attribute(temp, st)
	pl := placeAt(to, p)
	if err == nil {
		err = pl.before()
	}
	if err == nil {
		err = unix.Renameat2(q.s.work, temp, to, pl.stored, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		q.s.abandon(temp)
	}
	return err
}

// attribute gives the copy temp in work the attributes and the inode number of the original.
func (q *squashing) attribute(temp string, st *stat) error {
	s := q.s
	if err := s.takeAttributes(s.work, temp, st); err != nil {
		return err
	}
	now, err := statAt(s.work, temp)
	if err != nil {
		return err
	}
	alias := journal.Alias{Birth: now.birth, Shown: s.inodes.shown(st)}
	s.inodes.set(now.ino, alias)
	s.quota.add(&now)
	return s.journal.AppendDeferred(journal.AliasRecord(now.ino, alias))
}

// close removes the names in work of files with several names.
func (q *squashing) close() {
	for _, temp := range q.linked {
		_ = safefs.Unlink(q.s.work, temp) // Open sweeps what remains
	}
}

func placeAt(dir int, p vpath.Path) *place {
	pl := &place{dir: dir, path: p, name: p.Base()}
	pl.stored, pl.hashed = nameenc.Entry(pl.name)
	return pl
}

// copyFrozen copies the file st of a frozen layer to work, and returns its name there.
func (s *Stack) copyFrozen(dir int, stored string, st *stat) (temp string, err error) {
	temp = s.temp()
	switch st.kind() {
	case unix.S_IFREG:
		err = s.copyFrozenContent(dir, stored, st, temp)
	case unix.S_IFLNK:
		var target string
		if target, err = readlinkAt(dir, stored); err == nil {
			err = unix.Symlinkat(target, s.work, temp)
		}
	default:
		err = unix.Mknodat(s.work, temp, st.kind()|0o600, 0)
	}
	if err != nil {
		_ = safefs.Unlink(s.work, temp)
	}
	return temp, err
}

func (s *Stack) copyFrozenContent(dir int, stored string, st *stat, temp string) error {
	from, _, err := openRegular(entry{part: part{fd: dir}, stored: stored, st: *st}, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := openat2(s.work, temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	cloned, err := s.clone(to, &lower{st: *st, origin: Frozen, fd: from}, st.size)
	if !cloned && err == nil {
		err = copyData(to, from, st.size)
	}
	return err
}
