package sandbox

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/textdiff"
	"github.com/agentfense/agentfense/internal/vpath"
)

// FileDiff is one changed path. Directories are listed only where nothing
// listed below them tells of them.
type FileDiff struct {
	Path   vpath.Path
	Status Status
	Old    *Side // nil: absent
	New    *Side // nil: absent
	Mark   *Mark // nil: none
	// Stale says that the source has changed since the sandbox saw it: apply
	// will refuse. The diff is against what the sandbox saw.
	Stale bool

	change change
}

// Side is a file before or after.
type Side struct {
	Mode      uint32 // S_IFMT and permission bits
	SizeBytes int64
	Target    string // of a symbolic link
}

// Content is how the content of a file changed.
type Content struct {
	Hunks             []textdiff.Hunk
	Inserted, Deleted int // lines
	// Binary and TooLarge (than textdiff.SizeLimit) have no hunks; nor has a
	// file whose earlier content was not kept, which Unknown says.
	Binary, TooLarge, Unknown bool
}

// isShown reports whether the hunks are all there is to the content.
func (c *Content) isShown() bool { return !c.Binary && !c.TooLarge && !c.Unknown }

// Review shows what a sandbox changed. It only reads, also beside a running
// supervisor.
type Review struct {
	name  string // the sandbox's
	id    ID
	files []FileDiff
	work  *work // nil: of ReviewOf
	// content compares the contents of a file.
	content func(*FileDiff) (Content, error)
}

// ReviewOf shows changes that are known from elsewhere, in the order of files.
func ReviewOf(name string, id ID, files []FileDiff, content func(*FileDiff) (Content, error)) *Review {
	return &Review{name: name, id: id, files: files, content: content}
}

// Review opens the changes at and below the paths; without paths, all.
// Errors: NotFound if nothing changed at a path; those of Source.Open.
func (s *Sandbox) Review(paths ...vpath.Path) (*Review, error) {
	w, err := s.open(true)
	if err != nil {
		return nil, err
	}
	changes, err := w.changes(paths, false)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	files, err := w.fileDiffs(changes)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	r := &Review{name: s.Name(), id: s.ID(), work: w, files: files}
	r.content = r.compare
	return r, nil
}

// Close releases what Review opened.
func (r *Review) Close() error {
	if r.work == nil {
		return nil
	}
	return r.work.close()
}

// Files returns the changed paths: those marked RunsOnHost first, then those
// TrustedLater, then the others, each by path.
func (r *Review) Files() []FileDiff { return r.files }

func (w *work) fileDiffs(changes []change) ([]FileDiff, error) {
	var files []FileDiff
	told := map[vpath.Path]bool{} // directories with a listed change below
	for _, c := range slices.Backward(changes) {
		if c.status == 0 || c.kept != "" {
			continue
		}
		f := FileDiff{Path: c.Path, Status: c.status, Stale: !c.fresh, change: c}
		f.Old, f.New = w.sides(&c)
		silent := f.isDirOnly() && c.status != Modified && told[c.Path]
		for dir := range c.Path.Ancestors() {
			told[dir] = true
		}
		if silent {
			continue
		}
		f.Mark = f.mark()
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b FileDiff) int {
		return cmp.Or(cmp.Compare(b.risk(), a.risk()), cmp.Compare(a.Path, b.Path))
	})
	return files, nil
}

// mark returns the mark that f deserves.
func (f *FileDiff) mark() *Mark {
	var was, is Side
	if f.Old != nil {
		was = *f.Old
	}
	if f.New != nil {
		is = *f.New
	}
	return markFor(f.Path, was.Mode, is.Mode, is.Target)
}

func (f *FileDiff) risk() Risk {
	if f.Mark == nil {
		return NoRisk
	}
	return f.Mark.Risk
}

// isDirOnly reports whether neither side is anything but a directory.
func (f *FileDiff) isDirOnly() bool {
	return (f.Old == nil || isDir(f.Old.Mode)) && (f.New == nil || isDir(f.New.Mode))
}

func (w *work) sides(c *change) (before, after *Side) {
	if mode := c.baseMode(); mode != 0 {
		before = &Side{Mode: mode &^ (unix.S_ISUID | unix.S_ISGID), SizeBytes: c.Base.Size}
		if mode&typeBits == unix.S_IFLNK && c.fresh {
			// Unreadable or gone by now, it is shown without.
			before.Target, _ = w.stack.SourceReadlink(c.Path)
		}
	}
	if c.Kind != layer.Deleted {
		after = &Side{Mode: c.Info.Mode, SizeBytes: c.Info.Size}
		if c.Info.Mode&typeBits == unix.S_IFLNK {
			after.Target, _ = w.stack.Readlink(c.Path)
		}
	}
	return before, after
}

// Content compares the contents of f. A side that is neither a regular file
// nor a symbolic link has none.
func (r *Review) Content(f *FileDiff) (Content, error) { return r.content(f) }

func (r *Review) compare(f *FileDiff) (Content, error) {
	var c Content
	if f.change.sameContent {
		return c, nil
	}
	before, err := r.oldContent(f, &c)
	if err != nil {
		return c, err
	}
	after, err := r.newContent(f, &c)
	if err != nil {
		return c, err
	}
	switch {
	case textdiff.IsBinary(before) || textdiff.IsBinary(after):
		c = Content{Binary: true}
	case c.isShown():
		c.Hunks = textdiff.Hunks(before, after)
		c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	}
	return c, nil
}

func (r *Review) newContent(f *FileDiff, c *Content) ([]byte, error) {
	if f.New == nil {
		return nil, nil
	}
	switch f.New.Mode & typeBits {
	case unix.S_IFLNK:
		return []byte(f.New.Target), nil
	case unix.S_IFREG:
		return readSide(c, func() (*os.File, error) { return r.work.stack.OpenDelta(f.Path) })
	}
	return nil, nil
}

func (r *Review) oldContent(f *FileDiff, c *Content) ([]byte, error) {
	if f.Old == nil {
		return nil, nil
	}
	switch f.Old.Mode & typeBits {
	case unix.S_IFLNK:
		if f.Stale {
			c.Unknown = true
		}
		return []byte(f.Old.Target), nil
	case unix.S_IFREG:
		return readSide(c, func() (*os.File, error) { return r.openOld(f) })
	}
	return nil, nil
}

// openOld opens what the sandbox saw: the source as long as it is that, else
// what was kept of it.
func (r *Review) openOld(f *FileDiff) (*os.File, error) {
	if f.Stale {
		return r.work.stack.BaseContent(f.change.Base)
	}
	return r.work.stack.OpenSource(f.Path)
}

// readSide reads one side up to the limit; what cannot be had is noted in c.
func readSide(c *Content, open func() (*os.File, error)) ([]byte, error) {
	f, err := open()
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		c.Unknown = true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, io.LimitReader(f, textdiff.SizeLimit+1)); err != nil {
		return nil, fault.New(fault.Internal, "diff: %w", err)
	}
	if buf.Len() > textdiff.SizeLimit {
		c.TooLarge = true
	}
	return buf.Bytes(), nil
}
