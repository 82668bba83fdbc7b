package sandbox

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Status says what became of a path, in git's letters.
type Status byte

// The statuses. Renames are a deletion and an addition.
const (
	Added    Status = 'A'
	Modified Status = 'M'
	Deleted  Status = 'D'
	Retyped  Status = 'T' // a file became a link, a directory a file, …
)

// String returns git's letter.
func (s Status) String() string { return string(rune(s)) }

// statusWords are the API's words.
var statusWords = map[Status]string{Added: "added", Modified: "modified", Deleted: "deleted", Retyped: "retyped"}

// MarshalText returns the API's word, "" for none.
func (s Status) MarshalText() ([]byte, error) { return []byte(statusWords[s]), nil }

// change is an entry of the delta and what it means for the source.
type change struct {
	layer.Change
	// status is 0 where there is nothing to see: a file that was only opened
	// for writing, a directory that only leads to a change.
	status Status
	// fresh says that the source still is what the sandbox saw.
	fresh bool
	// sameContent says that at most the mode differs.
	sameContent bool
	// taken is the directory with which the path was deleted; "" if the delta
	// has an entry for the path itself.
	taken vpath.Path
	// movedTo is the own entry that has the content of what is deleted, see
	// findMoved; "" for none.
	movedTo vpath.Path
	// kept says why the source's entry survives although the view does not
	// show it; "" if it does not survive.
	kept string
}

// baseMode returns the type and permissions in the source, 0 for nothing.
func (c *change) baseMode() uint32 {
	if c.Base == nil || c.Base.Absent {
		return 0
	}
	return c.Base.Mode
}

const (
	typeBits = unix.S_IFMT
	permBits = 0o777
	// stickyBits are the permissions a directory takes over: all but setuid
	// and setgid.
	stickyBits = 0o1777
)

func isDir(mode uint32) bool { return mode&typeBits == unix.S_IFDIR }

// changes returns the changes at and below the paths (none: all), parents
// before children. With ways, it returns also the directories made by the
// sandbox that lead there. A path at which nothing changed is an error,
// NotFound.
func (w *work) changes(paths []vpath.Path, ways bool) ([]change, error) {
	all, err := w.stack.Changes()
	if err != nil {
		return nil, err
	}
	if w.turn == nil { // it only looks
		for i := range all {
			all[i].Base = cmp.Or(w.placed(all[i].Path), all[i].Base)
		}
	}
	w.delta, w.marker = withoutOwn(all), nil
	taken := markTaken(all)
	wanted, err := selected(all, paths)
	if err != nil {
		return nil, err
	}
	if ways {
		addWays(all, wanted)
	}
	var list []change
	for i := range all {
		if !wanted[i] {
			continue
		}
		c := change{Change: all[i], taken: taken[i]}
		err := w.classify(&c)
		switch {
		case err == nil:
			list = append(list, c)
		case w.lock != nil || !fault.Is(err, fault.NotFound):
			return nil, err
		} // else it is gone again, from a live sandbox
	}
	findMoved(all, list)
	return list, nil
}

// withoutOwn leaves own entries out: what will be applied.
func withoutOwn(all []layer.Change) []layer.Change {
	isOwn := func(c layer.Change) bool { return c.Path.IsOwn() }
	if !slices.ContainsFunc(all, isOwn) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), isOwn)
}

// markTaken finds for each change the directory above it with which it was
// deleted. all has parents before children.
func markTaken(all []layer.Change) []vpath.Path {
	taken := make([]vpath.Path, len(all))
	covers := map[vpath.Path]bool{}
	for i, c := range all {
		if c.Kind == layer.Deleted {
			for dir := c.Path.Dir(); ; dir = dir.Dir() {
				if covers[dir] {
					taken[i] = dir
				}
				if dir.IsRoot() {
					break
				}
			}
		}
		covers[c.Path] = c.Kind == layer.Deleted || c.TypeChanged
	}
	return taken
}

// selected tells which changes are meant by paths. There may be very many of
// both.
func selected(all []layer.Change, paths []vpath.Path) ([]bool, error) {
	wanted := make([]bool, len(all))
	met := make(map[vpath.Path]bool, len(paths)) // what is meant, and whether anything changed there
	for _, p := range paths {
		met[p] = false
	}
	for i, c := range all {
		wanted[i] = len(paths) == 0
		for p := c.Path.Plain(); len(met) > 0; p = p.Dir() {
			if _, meant := met[p]; meant {
				wanted[i], met[p] = true, true
			}
			if p.IsRoot() {
				break
			}
		}
	}
	for _, p := range paths {
		if !met[p] {
			return nil, fault.New(fault.NotFound, "path %s: nothing changed there", p)
		}
	}
	return wanted, nil
}

// addWays marks as wanted the directories that the sandbox made and that lead
// to what is wanted.
func addWays(all []layer.Change, wanted []bool) {
	ways := map[vpath.Path]bool{}
	for i, c := range slices.Backward(all) {
		made := (c.Kind == layer.Created || c.TypeChanged) && isDir(c.Info.Mode)
		wanted[i] = wanted[i] || made && ways[c.Path]
		if wanted[i] {
			ways[c.Path.Dir()] = true
		}
	}
	// A directory of the source between two of the sandbox's breaks no way:
	// what lies in a directory the sandbox made, it made.
}

// classify fills in what the change means.
func (w *work) classify(c *change) error {
	var err error
	if c.fresh, err = w.isFresh(c.Path, c.Base); err != nil {
		return err
	}
	if c.Kind == layer.Deleted {
		c.status, c.kept = Deleted, w.keeps(c)
		return nil
	}
	was := c.baseMode()
	switch {
	case was == 0:
		c.status = Added
		return nil
	case was&typeBits != c.Info.Mode&typeBits:
		c.status = Retyped
		return nil
	}
	if c.sameContent, err = w.isSameContent(c); err != nil {
		return err
	}
	if !c.sameContent || (was^c.Info.Mode)&permOf(was) != 0 {
		c.status = Modified
	}
	return nil
}

// isFresh reports whether the source still is what the sandbox saw. A file
// that lost names elsewhere is: each of them that is deleted or replaced
// moves the ctime of the others.
func (w *work) isFresh(p vpath.Path, b *layer.Base) (bool, error) {
	var fresh bool
	err := asUser(func() (err error) {
		fresh, err = w.stack.SourceMatches(p, b)
		return err
	})
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return b.Absent, nil // nothing can be where the directory is none
	case fault.Is(err, fault.Denied):
		return false, nil // unreadable by now: not what it was
	case err != nil || fresh || b == nil || b.Absent || b.Nlink < 2:
		return fresh, err
	}
	err = w.tree.at(p, func(e entry) error {
		now, err := e.stat()
		fresh = now != nil && uint32(now.Nlink) < b.Nlink && isBase(b, now)
		return err
	})
	return fresh && err == nil, nil // what cannot be looked at is not what it was
}

// isBase reports whether st is the file that b recorded, but for the ctime. A
// nil st stands for nothing.
func isBase(b *layer.Base, st *unix.Stat_t) bool {
	if st == nil || b == nil || b.Absent {
		return st == nil && b != nil && b.Absent
	}
	if isDir(b.Mode) {
		return isDir(st.Mode)
	}
	return st.Dev == b.Dev && st.Ino == b.Ino && st.Mode == b.Mode && st.Size == b.Size && st.Mtim == b.Mtime
}

// permOf returns the permission bits that count for a type.
func permOf(mode uint32) uint32 {
	switch mode & typeBits {
	case unix.S_IFDIR:
		return stickyBits
	case unix.S_IFLNK:
		return 0
	}
	return permBits
}

// keeps says why the source keeps what the view does not show any more: the
// sandbox did not remove it, it went out of sight with its directory. What
// some policy of the sandbox hid is kept too, because the record of an earlier
// change to it does not tell who removed it.
func (w *work) keeps(c *change) string {
	switch {
	case c.Base == nil || c.Base.Absent:
		return "the sandbox did not delete it"
	case c.taken == "":
		return ""
	case isHidden(w.policy, c.Path):
		return "the policy hides it"
	}
	for _, p := range w.earlier {
		if isHidden(p, c.Path) {
			return "an earlier policy of the sandbox hid it"
		}
	}
	return ""
}

func isHidden(p *policy.Policy, path vpath.Path) bool {
	return p.Decide(path).Permission < policy.View
}

// isSameContent reports whether the delta holds what the sandbox saw.
func (w *work) isSameContent(c *change) (bool, error) {
	if c.fresh {
		return w.isSameAsSource(c.Path, c.Info.Mode, c.Base.Size, c.Info.Size)
	}
	switch c.Info.Mode & typeBits {
	case unix.S_IFREG:
		if w.isSameIndex(c.Path, func() (*os.File, error) { return w.stack.BaseContent(c.Base) }) {
			return true, nil
		}
		if c.Base.SHA256 == nil || c.Info.Size != c.Base.Size {
			return false, nil
		}
		now, err := w.stack.OpenDelta(c.Path)
		if err != nil {
			return false, err
		}
		defer now.Close()
		h := sha256.New()
		if _, err := io.Copy(h, now); err != nil {
			return false, err
		}
		return bytes.Equal(h.Sum(nil), c.Base.SHA256), nil
	case unix.S_IFLNK:
		target, err := w.stack.Readlink(c.Path)
		sum := sha256.Sum256([]byte(target))
		return bytes.Equal(sum[:], c.Base.SHA256), err
	}
	return true, nil
}

// isSameAsSource reports whether the delta and the source, which have the
// same type and these sizes there, hold the same at p.
func (w *work) isSameAsSource(p vpath.Path, mode uint32, sourceSize, deltaSize int64) (bool, error) {
	switch mode & typeBits {
	case unix.S_IFLNK:
		now, err := w.stack.Readlink(p)
		if err != nil {
			return false, err
		}
		was, err := w.stack.SourceReadlink(p)
		if fault.Is(err, fault.NotFound) {
			return false, nil
		}
		return was == now, err
	case unix.S_IFREG:
	default:
		return true, nil
	}
	if w.isSameIndex(p, func() (*os.File, error) { return w.stack.OpenSource(p) }) {
		return true, nil
	}
	if sourceSize != deltaSize {
		return false, nil
	}
	now, err := w.stack.OpenDelta(p)
	if err != nil {
		return false, err
	}
	defer now.Close()
	was, err := w.stack.OpenSource(p)
	if fault.Is(err, fault.NotFound) {
		return false, nil // it went this moment
	}
	if err != nil {
		return false, err
	}
	defer was.Close()
	return equalContent(was, now)
}

func equalContent(a, b io.Reader) (bool, error) {
	const size = 64 << 10
	var bufA, bufB [size]byte
	for {
		n, errA := io.ReadFull(a, bufA[:])
		m, errB := io.ReadFull(b, bufB[:])
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return false, nil
		}
		if errA != nil || errB != nil {
			return isEnd(errA) && isEnd(errB), errors.Join(unlessEnd(errA), unlessEnd(errB))
		}
	}
}

func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func unlessEnd(err error) error {
	if isEnd(err) {
		return nil
	}
	return err
}
