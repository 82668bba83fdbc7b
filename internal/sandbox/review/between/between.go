// Package between shows how two states of one source differ, in the form of a review.
package between

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Compare shows how two states of one source differ, at and below the paths; without paths,
// everywhere. Marks are those of the tree as it would be if the later state were applied. Nothing
// of it can be applied, so it has no digest. The caller closes both states after the review.
// Errors: NotFound for a path at which the states do not differ.
func Compare(name string, earlier, later *changes.Work, paths ...vpath.Path) (*review.Review, error) {
	b := between{earlier: earlier.Stack, later: later.Stack}
	for _, w := range []*changes.Work{earlier, later} {
		if _, err := w.Changes(nil, false); err != nil {
			return nil, err
		}
	}
	all, err := b.files()
	if err != nil {
		return nil, err
	}
	told := map[vpath.Path]bool{} // directories with a difference below
	for _, f := range all {
		for dir := range f.Path.Ancestors() {
			told[dir] = true
		}
	}
	var files []review.FileDiff
	for _, f := range all {
		if isDirOnly(&f) && f.Status != changes.Modified && told[f.Path] {
			continue
		}
		files = append(files, f)
	}
	if files, err = within(files, paths); err != nil {
		return nil, err
	}
	return review.OfStates(name, earlier, later, files, b.content, sumIn(b.earlier), sumIn(b.later))
}

// isDirOnly reports whether neither side is anything but a directory.
func isDirOnly(f *review.FileDiff) bool {
	return (f.Old == nil || record.IsDir(f.Old.Mode)) && (f.New == nil || record.IsDir(f.New.Mode))
}

// within returns the files at and below the paths.
func within(files []review.FileDiff, paths []vpath.Path) ([]review.FileDiff, error) {
	if len(paths) == 0 {
		return files, nil
	}
	found := make([]bool, len(paths))
	var some []review.FileDiff
	for _, f := range files {
		is := false
		for i, p := range paths {
			if f.Path.Within(p) {
				found[i], is = true, true
			}
		}
		if is {
			some = append(some, f)
		}
	}
	for i, p := range paths {
		if !found[i] {
			return nil, errdefs.New(errdefs.NotFound, "%s: does not differ", changes.Quote(p))
		}
	}
	return some, nil
}

// between compares two states.
type between struct{ earlier, later *layer.Stack }

// files returns what differs at the paths that one of the states changed.
func (b *between) files() ([]review.FileDiff, error) {
	var files []review.FileDiff
	seen := map[vpath.Path]bool{}
	for _, s := range []*layer.Stack{b.earlier, b.later} {
		changed, err := s.Changes()
		if err != nil {
			return nil, err
		}
		for _, c := range changed {
			if seen[c.Path] {
				continue
			}
			seen[c.Path] = true
			f, err := b.file(c.Path)
			if err != nil {
				return nil, err
			}
			if f != nil {
				files = append(files, *f)
			}
		}
	}
	return files, nil
}

// file compares the entries at p; nil if they are equal.
func (b *between) file(p vpath.Path) (*review.FileDiff, error) {
	old, err := sideAt(b.earlier, p)
	if err != nil {
		return nil, err
	}
	now, err := sideAt(b.later, p)
	if err != nil {
		return nil, err
	}
	f := &review.FileDiff{Path: p.Plain(), Own: p.IsOwn(), Old: old, New: now, Change: changes.Change{Change: layer.Change{Path: p}}}
	switch {
	case old == nil && now == nil:
		return nil, nil
	case old == nil:
		f.Status = changes.Added
	case now == nil:
		f.Status = changes.Deleted
	case old.Mode&record.TypeBits != now.Mode&record.TypeBits:
		f.Status = changes.Retyped
	default:
		f.Status = changes.Modified
		if f.Change.SameContent, err = b.isSame(p, old, now); err != nil {
			return nil, err
		}
		if f.Change.SameContent && (old.Mode^now.Mode)&changes.PermOf(old.Mode) == 0 {
			return nil, nil
		}
	}
	return f, nil
}

func sideAt(s *layer.Stack, p vpath.Path) (*review.Side, error) {
	i, err := s.Lookup(p)
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition) { // ENOTDIR
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	side := &review.Side{Mode: i.Mode &^ (unix.S_ISUID | unix.S_ISGID), SizeBytes: i.Size, Links: i.Nlink}
	if i.Mode&record.TypeBits == unix.S_IFLNK {
		if side.Target, err = s.Readlink(p); err != nil {
			return nil, err
		}
	}
	return side, nil
}

// isSame reports whether the entries at p, of one type, have the same content.
func (b *between) isSame(p vpath.Path, old, now *review.Side) (bool, error) {
	switch old.Mode & record.TypeBits {
	case unix.S_IFLNK:
		return old.Target == now.Target, nil
	case unix.S_IFREG:
	default:
		return true, nil
	}
	if old.SizeBytes != now.SizeBytes {
		return false, nil
	}
	x, err := openState(b.earlier, p)
	if err != nil {
		return false, ignoreUnreadable(err)
	}
	defer x.Close()
	y, err := openState(b.later, p)
	if err != nil {
		return false, ignoreUnreadable(err)
	}
	defer y.Close()
	return safefs.HaveSameContent(x, y)
}

// ignoreUnreadable returns nil for a file that went meanwhile or that the user may not read: it
// counts as different, and its content as unknown.
func ignoreUnreadable(err error) error {
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Denied) {
		return nil
	}
	return err
}

// openState opens the regular file p of a state, whether the source or a layer has it.
func openState(s *layer.Stack, p vpath.Path) (*os.File, error) {
	f, err := s.OpenDelta(p)
	if errors.Is(err, unix.ENOENT) || errdefs.Is(err, errdefs.NotFound) {
		return s.OpenSource(p)
	}
	return f, err
}

// sumIn returns a function that sums up a regular file of a state; "" if it cannot be read.
func sumIn(s *layer.Stack) func(*review.FileDiff) string {
	return func(d *review.FileDiff) string {
		f, err := openState(s, d.Change.Path)
		if err != nil {
			return "" // it is shown without what it was
		}
		defer f.Close()
		sum, err := manifest.SumOf(f)
		if err != nil {
			return ""
		}
		return sum
	}
}

// content compares the contents of f.
func (b *between) content(f *review.FileDiff) (review.Content, error) {
	var c review.Content
	before, err := b.side(&c, f.Old, b.earlier, f.Change.Path)
	if err != nil {
		return c, err
	}
	after, err := b.side(&c, f.New, b.later, f.Change.Path)
	if err != nil {
		return c, err
	}
	c.SHA256 = after.sum
	switch {
	case f.Change.SameContent:
		c = review.Content{SHA256: after.sum} // only the mode differs
	case textdiff.IsBinary(before.head) || textdiff.IsBinary(after.head):
		c = review.Content{Binary: true, SHA256: after.sum}
	case c.IsShown():
		c.Hunks = textdiff.Hunks(before.head, after.head)
		c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	}
	return c, nil
}

func (b *between) side(c *review.Content, side *review.Side, s *layer.Stack, p vpath.Path) (sideContent, error) {
	if side == nil {
		return sideContent{}, nil
	}
	switch side.Mode & record.TypeBits {
	case unix.S_IFLNK:
		return sideContent{head: []byte(side.Target)}, nil
	case unix.S_IFREG:
		return read(c, s, p)
	}
	return sideContent{}, nil
}

// sideContent is the content of one side: what is shown of it, and the SHA-256 of the whole in hex,
// "" if it is not known.
type sideContent struct {
	head []byte
	sum  string
}

// read reads one side as far as it is shown, and sums all of it up.
func read(c *review.Content, s *layer.Stack, p vpath.Path) (side sideContent, err error) {
	f, err := openState(s, p)
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Denied) {
		c.Unknown = true
		return side, nil
	}
	if err != nil {
		return side, err
	}
	defer f.Close()
	if side.sum, side.head, err = manifest.ReadContent(f, textdiff.SizeLimit+1, true); err != nil {
		return side, errdefs.New(record.DiskKind(err), "diff: %w", err)
	}
	c.TooLarge = c.TooLarge || len(side.head) > textdiff.SizeLimit
	return side, nil
}
