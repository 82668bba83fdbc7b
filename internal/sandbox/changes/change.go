package changes

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/parallel"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Status is the way in which a path changed, as git's letter.
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

// statusWords are the API's names of the statuses.
var statusWords = map[Status]string{Added: "added", Modified: "modified", Deleted: "deleted", Retyped: "retyped"}

// MarshalText returns the API's name, or "" for 0.
func (s Status) MarshalText() ([]byte, error) { return []byte(statusWords[s]), nil }

// Change is an entry of the delta, with its effect on the source.
type Change struct {
	layer.Change
	// Status is 0 without a visible change: for a file that was only opened for writing, or
	// a directory that only contains a change.
	Status Status
	// Fresh says that the source has not changed since the sandbox saw it.
	Fresh bool
	// SameContent says that only the mode can differ.
	SameContent bool
	// Taken is the deleted directory that contained the path; "" if the delta has an entry
	// for the path itself.
	Taken vpath.Path
	// movedTo is the own entry that has the deleted content, see findMoved; "" if there is
	// none.
	movedTo vpath.Path
	// Kept is the reason why the source keeps its entry although the view does not show it;
	// "" if the source does not keep it.
	Kept string
}

// IsListed reports whether a review shows the change: it has a status, and the source does
// not keep its entry.
func (c *Change) IsListed() bool { return c.Status != 0 && c.Kept == "" }

// BaseMode returns the recorded type and permissions in the source, or 0 if nothing was
// there.
func (c *Change) BaseMode() uint32 {
	if c.Base == nil || c.Base.Absent {
		return 0
	}
	return c.Base.Mode
}

// Changes returns the changes at and below the paths (none: all), parents before children.
// With ways, it also returns their parent directories that the sandbox made. Errors:
// NotFound for a path without changes.
func (w *Work) Changes(paths []vpath.Path, ways bool) ([]Change, error) {
	all, err := w.Stack.Changes()
	if err != nil {
		return nil, err
	}
	if w.ApplyLock == nil { // read-only
		for i := range all {
			all[i].Base = cmp.Or(w.placed(all[i].Path), all[i].Base)
		}
	}
	w.Delta = withoutOwn(all)
	taken := MarkTaken(all)
	wanted, err := selected(all, paths)
	if err != nil {
		return nil, err
	}
	if ways {
		addWays(all, wanted)
	}
	var list []Change
	if len(paths) == 0 {
		list = make([]Change, 0, len(all))
	}
	for i := range all {
		if wanted[i] {
			list = append(list, Change{Change: all[i], Taken: taken[i]})
		}
	}
	if list, err = w.classifyAll(list); err != nil {
		return nil, err
	}
	findMoved(all, list)
	return list, nil
}

// classifyAll calls Classify for each change. It returns the changes without those that the running
// sandbox has removed again.
func (w *Work) classifyAll(list []Change) ([]Change, error) {
	gone := make([]bool, len(list))
	err := parallel.Each(len(list), func(i int) error {
		err := w.Classify(&list[i])
		gone[i] = w.Lock == nil && errdefs.Is(err, errdefs.NotFound)
		if gone[i] {
			return nil
		}
		return err
	})
	if err != nil || !slices.Contains(gone, true) {
		return list, err
	}
	var still []Change
	for i := range list {
		if !gone[i] {
			still = append(still, list[i])
		}
	}
	return still, nil
}

// withoutOwn returns the changes without own entries, which are never applied.
func withoutOwn(all []layer.Change) []layer.Change {
	isOwn := func(c layer.Change) bool { return c.Path.IsOwn() }
	if !slices.ContainsFunc(all, isOwn) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), isOwn)
}

// MarkTaken returns, for each change, the deleted directory that contained it. all has
// parents before children.
func MarkTaken(all []layer.Change) []vpath.Path {
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

// Classify sets the fields that describe the effect of the change. Several goroutines may call it.
func (w *Work) Classify(c *Change) error {
	var err error
	if c.Fresh, err = w.IsFresh(c.Path, c.Base); err != nil {
		return err
	}
	if c.Kind == layer.Deleted {
		c.Status, c.Kept = Deleted, w.keeps(c)
		return nil
	}
	was := c.BaseMode()
	switch {
	case was == 0:
		c.Status = Added
		return nil
	case was&record.TypeBits != c.Info.Mode&record.TypeBits:
		c.Status = Retyped
		return nil
	}
	if c.SameContent, err = w.isSameContent(c); err != nil {
		return err
	}
	if !c.SameContent || (was^c.Info.Mode)&PermOf(was) != 0 {
		c.Status = Modified
	}
	return nil
}

// IsFresh reports whether the source's entry is still the one that the sandbox saw. It
// ignores the ctime of a file that lost other names: the deletion or replacement of one
// name changes the ctime of the others.
func (w *Work) IsFresh(p vpath.Path, b *layer.Base) (bool, error) {
	return w.isFresh(p, b, func() (bool, error) { return w.Stack.SourceMatches(p, b) })
}

// IsFreshIn is IsFresh for the entry of p, whose directory is open.
func (w *Work) IsFreshIn(e Entry, p vpath.Path, b *layer.Base) (bool, error) {
	return w.isFresh(p, b, func() (bool, error) { return w.Stack.SourceMatchesIn(e.Dir, p, b) })
}

func (w *Work) isFresh(p vpath.Path, b *layer.Base, matches func() (bool, error)) (bool, error) {
	var fresh bool
	err := rights.AsUser(func() (err error) {
		fresh, err = matches()
		return err
	})
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return b.Absent, nil // nothing can exist below a path that is not a directory
	case errdefs.Is(err, errdefs.Denied):
		return false, nil // unreadable now, so it has changed
	case err != nil || fresh || b == nil || b.Absent || b.Nlink < 2:
		return fresh, err
	}
	err = w.Tree.At(p, func(e Entry) error {
		now, err := e.Stat()
		fresh = now != nil && uint32(now.Nlink) < b.Nlink && isBase(b, now)
		return err
	})
	return fresh && err == nil, nil // an unreadable entry counts as changed
}

// isBase reports whether st is the file that b recorded, ignoring the ctime. A nil st means
// that nothing is there.
func isBase(b *layer.Base, st *unix.Stat_t) bool {
	if st == nil || b == nil || b.Absent {
		return st == nil && b != nil && b.Absent
	}
	if record.IsDir(b.Mode) {
		return record.IsDir(st.Mode)
	}
	return st.Dev == b.Dev && st.Ino == b.Ino && st.Mode == b.Mode && st.Size == b.Size && st.Mtim == b.Mtime
}

// PermOf returns the relevant permission bits of a mode.
func PermOf(mode uint32) uint32 {
	switch mode & record.TypeBits {
	case unix.S_IFDIR:
		return record.StickyBits
	case unix.S_IFLNK:
		return 0
	}
	return record.PermBits
}

// keeps returns the reason why the source keeps an entry that the view no longer shows: the
// sandbox did not remove it, but its directory. It also keeps an entry that any policy of
// the sandbox hid, because the record of an earlier change does not say who removed it.
func (w *Work) keeps(c *Change) string {
	switch {
	case c.Base == nil || c.Base.Absent:
		return "the sandbox did not delete it"
	case c.Taken == "":
		return ""
	}
	return w.Hides(c.Path)
}

// Hides returns which policy of the sandbox hides path, or has hidden it; "" if none.
func (w *Work) Hides(path vpath.Path) string {
	if IsHidden(w.Policy, path) {
		return "the policy hides it"
	}
	for _, p := range w.earlier {
		if IsHidden(p, path) {
			return "an earlier policy of the sandbox hid it"
		}
	}
	return ""
}

// IsHidden reports whether the policy hides path.
func IsHidden(p *policy.Policy, path vpath.Path) bool {
	return p.Decide(path).Permission < policy.View
}

// isSameContent reports whether the delta has the content that the sandbox saw.
func (w *Work) isSameContent(c *Change) (bool, error) {
	if c.Fresh {
		return w.IsSameAsSource(c.Path, c.Info.Mode, c.Base.Size, c.Info.Size)
	}
	switch c.Info.Mode & record.TypeBits {
	case unix.S_IFREG:
		if w.isSameIndex(c.Path, func() (*os.File, error) { return w.Stack.BaseContent(c.Base) }) {
			return true, nil
		}
		if c.Base.SHA256 == nil || c.Info.Size != c.Base.Size {
			return false, nil
		}
		now, err := w.Stack.OpenDelta(c.Path)
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
		target, err := w.Stack.Readlink(c.Path)
		sum := sha256.Sum256([]byte(target))
		return bytes.Equal(sum[:], c.Base.SHA256), err
	}
	return true, nil
}

// IsSameAsSource reports whether the delta and the source, which have the same type and
// these sizes at p, have the same content at p.
func (w *Work) IsSameAsSource(p vpath.Path, mode uint32, sourceSize, deltaSize int64) (bool, error) {
	switch mode & record.TypeBits {
	case unix.S_IFLNK:
		now, err := w.Stack.Readlink(p)
		if err != nil {
			return false, err
		}
		was, err := w.Stack.SourceReadlink(p)
		if errdefs.Is(err, errdefs.NotFound) {
			return false, nil
		}
		return was == now, err
	case unix.S_IFREG:
	default:
		return true, nil
	}
	if w.isSameIndex(p, func() (*os.File, error) { return w.Stack.OpenSource(p) }) {
		return true, nil
	}
	if sourceSize != deltaSize {
		return false, nil
	}
	now, err := w.Stack.OpenDelta(p)
	if err != nil {
		return false, err
	}
	defer now.Close()
	was, err := w.Stack.OpenSource(p)
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Denied) {
		return false, nil // removed meanwhile, or the user may not read it
	}
	if err != nil {
		return false, err
	}
	defer was.Close()
	return safefs.HaveSameContent(was, now)
}

// IsPresent reports whether the source already has the result of the change: from an
// interrupted apply, from commits that were applied, or made by hand.
func (w *Work) IsPresent(c *Change) (bool, error) {
	now, err := w.Stack.SourceInfo(c.Path)
	switch {
	case errdefs.Is(err, errdefs.NotFound):
		return c.Status == Deleted, nil
	case err != nil:
		return false, record.UnlessDenied(err)
	case c.Status == Deleted || now.Mode&record.TypeBits != c.Info.Mode&record.TypeBits:
		return false, nil
	case now.IsDir():
		return c.BaseMode() == 0 || now.Mode&record.StickyBits == c.Info.Mode&record.StickyBits, nil
	case (now.Mode^c.Info.Mode)&PermOf(now.Mode) != 0:
		return false, nil
	}
	same, err := w.IsSameAsSource(c.Path, now.Mode, now.Size, c.Info.Size)
	return same, record.UnlessDenied(err)
}

// Quote returns the path relative to the source, escaped as in all messages.
func Quote(p vpath.Path) string { return vpath.Escape(p.Rel()) }

// HasBaseContent reports whether the file name of dir, which st describes, has the mode and
// the content that b recorded. It may be another file.
func HasBaseContent(b *layer.Base, dir int, name string, st *unix.Stat_t) bool {
	if st == nil || st.Mode != b.Mode {
		return false
	}
	if b.SHA256 == nil {
		return st.Size == b.Size && st.Mtim == b.Mtime
	}
	switch st.Mode & record.TypeBits {
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, target)
		sum := sha256.Sum256(target[:max(n, 0)])
		return err == nil && bytes.Equal(sum[:], b.SHA256)
	case unix.S_IFREG:
		if st.Size != b.Size {
			return false
		}
		fd, err := safefs.Open(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			return false
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		h := sha256.New()
		_, err = io.Copy(h, io.LimitReader(f, b.Size+1))
		return err == nil && bytes.Equal(h.Sum(nil), b.SHA256)
	}
	return false
}
