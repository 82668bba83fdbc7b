// Package review finds what a person is to know of a sandbox's changes: their contents,
// groups, renames, risk marks and what they do to git. A review has a digest, so that
// apply takes what was shown and nothing else. How it looks is not decided here.
package review

import (
	"cmp"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/keeping"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// FileDiff is one changed path. Directories are listed only where nothing
// listed below them tells of them.
type FileDiff struct {
	Path   vpath.Path
	Status changes.Status
	Old    *Side     // nil: absent
	New    *Side     // nil: absent
	Mark   *RiskFlag // nil: none
	// Own says that it is an own entry: made where the policy hides what the source
	// has. LeftOut says why no apply takes the change, "" if one may.
	Own     bool
	LeftOut string
	// NotPlaced says why an apply as this user will fail here, "" if it is not known to.
	NotPlaced string
	// Stale says that the source has changed since the sandbox saw it: apply
	// will refuse. The diff is against what the sandbox saw.
	Stale bool
	// Group is the name of the group that the change is shown in, "" for none.
	Group string
	// RenamedFrom is where an added file was before: a deleted path with the same
	// content. RenamedTo is the reverse, at the deleted path. "": none is known.
	RenamedFrom, RenamedTo vpath.Path
	Keeping                keeping.Decision

	Change changes.Change
}

// Side is a file before or after.
type Side struct {
	Mode      uint32 // S_IFMT and permission bits
	SizeBytes int64
	Target    string // of a symbolic link
	// Links is how many names the sandbox has for the file, 0 if that is not known. Each name in
	// the source is a file for itself.
	Links uint32
}

// Size returns the size in bytes, 0 for a side that is absent.
func (s *Side) Size() int64 {
	if s == nil {
		return 0
	}
	return s.SizeBytes
}

// HasOneName reports whether no other name leads to the side's content. It is true of an absent
// side and of a directory, and false if it is not known.
func (s *Side) HasOneName() bool {
	return s == nil || record.IsDir(s.Mode) || s.Links == 1
}

// Content is how the content of a file changed.
type Content struct {
	Hunks             []textdiff.Hunk
	Inserted, Deleted int // lines
	// Binary and TooLarge (than textdiff.SizeLimit) have no hunks; nor has a
	// file whose earlier content was not kept, which Unknown says.
	Binary, TooLarge, Unknown bool
	// SHA256 is that of what a regular file holds now, in hex; "" if there is
	// none, or it is not known.
	SHA256 string
}

// IsShown reports whether the hunks are all there is to the content.
func (c *Content) IsShown() bool { return !c.Binary && !c.TooLarge && !c.Unknown }

// Review is what a sandbox changed. It only reads, also beside a running
// supervisor.
type Review struct {
	name  string // the sandbox's
	id    record.ID
	files []FileDiff
	// groups are those of files, by name.
	groups []Group
	work   *changes.Work // nil: made by Of
	mount  string        // of what Of made
	// content compares the contents of a file.
	content func(*FileDiff) (Content, error)

	paths   []vpath.Path      // that were asked for
	implied manifest.Manifest // directories that are not listed
	mu      sync.Mutex        // for shown
	shown   manifest.Manifest // files whose contents were compared
	digest  string            // see Remember
}

// Of shows changes that are known from elsewhere, in a mount or for "" in the
// workspace. digest names what is shown, "" for a list of names.
func Of(name string, id record.ID, mount, digest string, files []FileDiff, groups []Group, content func(*FileDiff) (Content, error)) *Review {
	sortFiles(files, nil)
	return &Review{name: name, id: id, mount: mount, digest: digest, files: files, groups: groups, content: content}
}

// Open opens the changes at and below the paths; without paths, all.
// Without its source (see SourceLost) the changes are compared with what was
// recorded of it. Errors: NotFound if nothing changed at a path; those of
// Source.Open.
func Open(s *record.Sandbox, paths ...vpath.Path) (*Review, error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return nil, err
	}
	changes, err := w.Changes(paths, true)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	r := &Review{name: s.Name(), id: s.ID(), work: w, paths: paths, implied: manifest.Manifest{}, shown: manifest.Manifest{}}
	if r.files, r.groups, err = FileDiffs(w, changes, r.implied); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	r.content = r.compare
	return r, nil
}

// Close releases what Open opened.
func (r *Review) Close() error {
	if r.work == nil {
		return nil
	}
	return r.work.Close()
}

// Name returns the name of the sandbox.
func (r *Review) Name() string { return r.name }

// Mount returns the name of the mount in which the changes are; "" is the workspace.
func (r *Review) Mount() string {
	if r.work == nil {
		return r.mount
	}
	return r.work.Sandbox.Mount()
}

// ID returns the id of the sandbox.
func (r *Review) ID() record.ID { return r.id }

// Files returns the changed paths: those in no group first, and of them those
// that remove hidden files from git, then those marked RunsOnHost, then those
// TrustedLater, then the others, each by path; at the end what no apply takes.
func (r *Review) Files() []FileDiff { return r.files }

// Groups returns what the changes are shown in, by name.
func (r *Review) Groups() []Group { return r.groups }

// FileDiffs lists changes, and the groups that they are in. Directories that it
// leaves out it adds to left.
func FileDiffs(w *changes.Work, changes []changes.Change, left manifest.Manifest) ([]FileDiff, []Group, error) {
	if len(changes) == 0 {
		return nil, []Group{}, nil // most runs change nothing, and need no marks either
	}
	m, err := marks(w)
	if err != nil {
		return nil, nil, err
	}
	files := make([]FileDiff, 0, len(changes))
	var out []FileDiff // what no apply takes
	silent := Implied(changes)
	for _, c := range slices.Backward(changes) {
		if !c.IsListed() {
			continue
		}
		if silent[c.Path] {
			if !c.IsOwn() {
				left[c.Path] = manifest.EntryOf(&c, "")
			}
			continue
		}
		f := FileDiff{Path: c.Path.Plain(), Status: c.Status, Stale: !c.Fresh, Own: c.IsOwn(), LeftOut: c.LeftOut(), NotPlaced: w.CannotPlace(&c), Change: c}
		f.Old, f.New = sides(w, &c)
		if c.LeftOut() != "" {
			out = append(out, f)
			continue
		}
		f.Mark = m.ofDiff(&f)
		files = append(files, f)
	}
	removing := markRemovals(w, files, func(vpath.Path) bool { return true })
	groups := group(w, nil, files, m)
	findRenames(files, sumOfDelta(w), sumOfSource(w))
	setKeeping(w, files, m)
	sortFiles(files, removing)
	sortFiles(out, nil)
	return append(files, out...), groups, nil
}

// Implied are the directories among changes that are not listed: something
// listed below tells of them. An own entry, which no apply takes, tells of own
// directories alone.
func Implied(list []changes.Change) map[vpath.Path]bool {
	told := map[vpath.Path]bool{} // directories with a listed change below
	toldOwn := map[vpath.Path]bool{}
	silent := map[vpath.Path]bool{}
	for _, c := range slices.Backward(list) {
		if !c.IsListed() {
			continue
		}
		tells := told
		if c.IsOwn() {
			tells = toldOwn
		}
		if tells[c.Path] && c.Status != changes.Modified && isDirOnly(&c) {
			silent[c.Path] = true
		}
		for dir := range c.Path.Ancestors() {
			tells[dir] = true
		}
	}
	return silent
}

// isDirOnly reports whether neither side is anything but a directory.
func isDirOnly(c *changes.Change) bool {
	was := c.BaseMode()
	return (was == 0 || record.IsDir(was)) && (c.Kind == layer.Deleted || record.IsDir(c.Info.Mode))
}

// sortFiles sorts as Files says.
func sortFiles(files []FileDiff, removing map[vpath.Path]bool) {
	slices.SortFunc(files, func(a, b FileDiff) int {
		return cmp.Or(first(a.LeftOut == "", b.LeftOut == ""), first(a.Group == "", b.Group == ""), first(removing[a.Path], removing[b.Path]), cmp.Compare(b.risk(), a.risk()), cmp.Compare(a.Path, b.Path))
	})
}

func (f *FileDiff) risk() Risk {
	if f.Mark == nil {
		return NoRisk
	}
	return f.Mark.Risk
}

// isDirOnly reports whether neither side is anything but a directory.
func (f *FileDiff) isDirOnly() bool {
	return (f.Old == nil || record.IsDir(f.Old.Mode)) && (f.New == nil || record.IsDir(f.New.Mode))
}

func sides(w *changes.Work, c *changes.Change) (before, after *Side) {
	if mode := c.BaseMode(); mode != 0 {
		before = &Side{Mode: mode &^ (unix.S_ISUID | unix.S_ISGID), SizeBytes: c.Base.Size, Links: 1}
		if mode&record.TypeBits == unix.S_IFLNK && c.Fresh {
			// Unreadable or gone by now, it is shown without.
			before.Target, _ = w.Stack.SourceReadlink(c.Path)
		}
	}
	if c.Kind != layer.Deleted {
		after = &Side{Mode: c.Info.Mode, SizeBytes: c.Info.Size, Links: c.Info.Nlink}
		if c.Info.Mode&record.TypeBits == unix.S_IFLNK {
			after.Target, _ = w.Stack.Readlink(c.Path)
		}
	}
	return before, after
}

// Parts returns f, or for a change of type the deletion and the addition that
// it is to git.
func (f *FileDiff) Parts() []FileDiff {
	if f.Status != changes.Retyped {
		return []FileDiff{*f}
	}
	gone, made := *f, *f
	gone.New, made.Old = nil, nil
	return []FileDiff{gone, made}
}

// NoteShown counts f as shown without a comparison: its path, and by the digest what
// it holds.
func (r *Review) NoteShown(f *FileDiff) error {
	if r.work == nil {
		return nil
	}
	e, err := manifest.EntryNow(r.work, &f.Change)
	switch {
	case err == nil && (!e.IsRegular() || e.SHA256 != ""):
		r.noteShown(f.Path, e)
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition), errdefs.Is(err, errdefs.Denied):
		return nil // gone again, from a live sandbox: it is not shown
	}
	return err
}

func (r *Review) noteShown(p vpath.Path, e manifest.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown[p] = e
}

// Content compares the contents of f; several goroutines may call it. A side that is neither a
// regular file nor a symbolic link has none.
func (r *Review) Content(f *FileDiff) (Content, error) { return r.content(f) }

func (r *Review) compare(f *FileDiff) (Content, error) {
	var c Content
	entry := manifest.EntryOf(&f.Change, "")
	if f.New != nil {
		entry = manifest.EntryOf(&f.Change, f.New.Target)
	}
	before, err := r.oldContent(f, &c)
	if err != nil {
		return c, err
	}
	after, err := r.newContent(f, &c)
	if err != nil {
		return c, err
	}
	if entry.SHA256 = after.sum; !f.Own && (!entry.IsRegular() || after.sum != "") {
		r.noteShown(f.Path, entry)
	}
	c.SHA256 = after.sum
	switch {
	case f.Change.SameContent && before.sum == after.sum && after.sum != "":
		c = Content{SHA256: after.sum} // only the mode differs
	case textdiff.IsBinary(before.head) || textdiff.IsBinary(after.head):
		c = Content{Binary: true, SHA256: after.sum}
	case c.IsShown():
		c.Hunks = textdiff.Hunks(before.head, after.head)
		c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	}
	return c, nil
}

// sideContent is the content of one side: what is shown of it, and the SHA-256
// of the whole in hex, "" if it is not known.
type sideContent struct {
	head []byte
	sum  string
}

func (r *Review) newContent(f *FileDiff, c *Content) (sideContent, error) {
	if f.New == nil {
		return sideContent{}, nil
	}
	switch f.New.Mode & record.TypeBits {
	case unix.S_IFLNK:
		return sideContent{head: []byte(f.New.Target)}, nil
	case unix.S_IFREG:
		return readSide(c, true, func() (*os.File, error) { return r.work.Stack.OpenDelta(f.Change.Path) })
	}
	return sideContent{}, nil
}

func (r *Review) oldContent(f *FileDiff, c *Content) (sideContent, error) {
	if f.Old == nil {
		return sideContent{}, nil
	}
	switch f.Old.Mode & record.TypeBits {
	case unix.S_IFLNK:
		if f.Stale {
			c.Unknown = true
		}
		return sideContent{head: []byte(f.Old.Target)}, nil
	case unix.S_IFREG:
		side, err := readSide(c, f.Change.SameContent, func() (*os.File, error) { return r.openOld(f) })
		if f.Stale && f.Change.Base.SHA256 != nil {
			side.sum = hex.EncodeToString(f.Change.Base.SHA256)
		}
		return side, err
	}
	return sideContent{}, nil
}

// openOld opens what the sandbox saw: the source as long as it is that, else
// what was kept of it.
func (r *Review) openOld(f *FileDiff) (*os.File, error) {
	if f.Stale {
		return r.work.Stack.BaseContent(f.Change.Base)
	}
	return r.work.Stack.OpenSource(f.Path)
}

// readSide reads one side as far as it is shown and, with whole, sums all of it
// up; what cannot be had is noted in c.
func readSide(c *Content, whole bool, open func() (*os.File, error)) (sideContent, error) {
	f, err := open()
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Denied) {
		c.Unknown = true
		return sideContent{}, nil
	}
	if err != nil {
		return sideContent{}, err
	}
	defer f.Close()
	var side sideContent
	if side.sum, side.head, err = manifest.ReadContent(f, textdiff.SizeLimit+1, whole); err != nil {
		return side, errdefs.New(record.DiskKind(err), "diff: %w", err)
	}
	if len(side.head) > textdiff.SizeLimit {
		c.TooLarge = true
	}
	return side, nil
}
