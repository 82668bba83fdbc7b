package hunk

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/keeping"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
)

// Picked is what ids choose of the changes of a sandbox.
type Picked struct {
	// Changes are the chosen ones, and those that they cannot be applied without, in the order of
	// the list.
	Changes []changes.Change
	// Parts has what the source gets, for each file of which only a part is chosen.
	Parts map[vpath.Path]*Part
	// Stale says, for each change to leave out, why.
	Stale map[vpath.Path]string
	// Entries are the chosen changes as they were looked at.
	Entries manifest.Manifest

	wanted map[string]map[string]bool // ids by what they begin with
	met    map[string]bool            // of these, the keys of which there is a change
	whole  map[vpath.Path]bool        // chosen, but for parts
}

// Part is a chosen part of the change of a file.
type Part struct {
	keeping.Merged
	Taken, All int // hunks, and of a hunk that is chosen in part its pieces
}

// Pick finds what the ids choose among all, which are changes with their parents before them; ref
// names the sandbox. Errors: Invalid for what is no id; Precondition for a part of a git
// directory, and for a change in a directory that replaces a file that is not chosen; those
// of the host.
func Pick(w *changes.Work, all []changes.Change, ids []string, ref string) (*Picked, error) {
	wanted, err := byKey(ids)
	if err != nil {
		return nil, err
	}
	p := &Picked{
		Parts: map[vpath.Path]*Part{}, Stale: map[vpath.Path]string{}, Entries: manifest.Manifest{},
		wanted: wanted, met: map[string]bool{}, whole: map[vpath.Path]bool{},
	}
	silent := review.Implied(all)
	for i := range all {
		c := &all[i]
		ids := wanted[keyOf(c.Path)]
		if len(ids) == 0 || !c.IsListed() || silent[c.Path] || c.IsOwn() || c.LeftOut() != "" {
			continue
		}
		p.met[keyOf(c.Path)] = true
		if err := p.pick(w, c, ids); err != nil {
			return nil, err
		}
	}
	if err := p.collect(w, all, silent, ref); err != nil {
		return nil, err
	}
	return p, p.checkGit(all, ref)
}

// Names reports whether an id chooses something of the change at the path.
func (p *Picked) Names(at vpath.Path) bool { return len(p.wanted[keyOf(at)]) > 0 }

// CheckMet returns an error if there is no change that an id is about; gone are further paths that
// the caller accounts for. Errors: NotFound.
func (p *Picked) CheckMet(gone []vpath.Path, ref string) error {
	for _, at := range gone {
		p.met[keyOf(at)] = true
	}
	for _, key := range slices.Sorted(maps.Keys(p.wanted)) {
		if !p.met[key] {
			id := slices.Min(slices.Collect(maps.Keys(p.wanted[key])))
			return errdefs.New(errdefs.NotFound, "hunk %s: no change has it any more; look at the changes again%s", id, errdefs.Command("diff "+ref+" --json"))
		}
	}
	return nil
}

// pick notes what the ids choose of a change.
func (p *Picked) pick(w *changes.Work, c *changes.Change, ids map[string]bool) error {
	l, err := look(w, c)
	if err != nil {
		return err
	}
	if l.hidden != "" {
		p.Stale[c.Path] = l.hidden
		return nil
	}
	set := l.unit.set()
	p.Entries[c.Path] = l.entry
	if ids[set.Whole] {
		p.whole[c.Path] = true
		return nil
	}
	chosen, taken := choose(set.Text, ids)
	found, mode := taken, 0
	if ids[set.Mode] {
		found, mode = found+1, 1
	}
	switch all := pieces(set.Text); {
	case found < len(ids):
		// Also if some are found: a person or program that chose them has seen another file.
		p.Stale[c.Path] = "a hunk that was chosen is not among its changes now"
	case len(chosen) == all && (mode == 1 || set.Mode == ""):
		p.whole[c.Path] = true
	default:
		part := &Part{}
		part.Taken, part.All = count(set.Text, ids)
		if set.Mode != "" {
			part.Taken, part.All = part.Taken+mode, part.All+1
		}
		part.Mode = c.BaseMode() & record.PermBits
		if mode == 1 {
			part.Mode = c.Info.Mode & record.PermBits
		}
		return p.part(c, l, chosen, part)
	}
	return nil
}

// pieces counts the pieces of hunks.
func pieces(hunks []Hunk) int {
	n := 0
	for _, h := range hunks {
		n += max(1, len(h.Pieces))
	}
	return n
}

// count counts the chosen hunks and all hunks as a person has seen them: a hunk that was split, of
// which only some pieces are chosen, counts as its pieces.
func count(hunks []Hunk, ids map[string]bool) (taken, all int) {
	for _, h := range hunks {
		n := 0
		for _, piece := range h.Pieces {
			if ids[piece.ID] {
				n++
			}
		}
		switch {
		case ids[h.ID] || n > 0 && n == len(h.Pieces):
			taken, all = taken+1, all+1
		case n > 0:
			taken, all = taken+n, all+len(h.Pieces)
		default:
			all++
		}
	}
	return taken, all
}

// choose returns the chosen pieces of hunks, and how many of the ids it has met.
func choose(hunks []Hunk, ids map[string]bool) (chosen []textdiff.Hunk, met int) {
	for _, h := range hunks {
		all := h.Pieces
		if all == nil {
			all = []Hunk{{Hunk: h.Hunk}}
		}
		if ids[h.ID] {
			met++
		}
		for _, piece := range all {
			if ids[piece.ID] {
				met++
			}
			if ids[h.ID] || ids[piece.ID] {
				chosen = append(chosen, piece.Hunk)
			}
		}
	}
	return chosen, met
}

// part notes what the source's file becomes with the chosen hunks.
func (p *Picked) part(c *changes.Change, l looked, chosen []textdiff.Hunk, part *Part) error {
	text, err := textdiff.Patched(l.before, chosen)
	if err != nil {
		return errdefs.New(errdefs.Internal, "apply %s: %w", c.Path, err)
	}
	part.Text, part.Sum, part.Mtime, part.Rest = text, l.unit.sum, c.Info.Mtime, true
	p.Parts[c.Path] = part
	return nil
}

// looked is what a change was when it was looked at.
type looked struct {
	unit   unit
	entry  manifest.Entry
	before []byte // the content in the source, as far as it is compared
	hidden string // why the change cannot be looked at
}

// look reads a change as a review does.
func look(w *changes.Work, c *changes.Change) (l looked, err error) {
	l.unit = unit{path: c.Path, status: c.Status, oldMode: c.BaseMode()}
	if c.Status == changes.Deleted {
		l.entry = manifest.EntryOf(c, "")
		return l, nil
	}
	l.unit.newMode = c.Info.Mode
	if c.Info.Mode&record.TypeBits == unix.S_IFLNK {
		l.unit.target, err = w.Stack.Readlink(c.Path)
	}
	l.entry = manifest.EntryOf(c, l.unit.target)
	if err != nil || !l.entry.IsRegular() {
		return l, l.unlessGone(err)
	}
	sum, after, err := read(c.Path, true, rights.AsOwner, func() (*os.File, error) { return w.Stack.OpenDelta(c.Path) })
	if err != nil {
		return l, l.unlessGone(err)
	}
	l.unit.sum, l.entry.SHA256 = sum, sum
	if c.Status != changes.Modified || c.SameContent {
		return l, nil
	}
	_, l.before, err = read(c.Path, false, rights.AsUser, func() (*os.File, error) {
		if !c.Fresh {
			return w.Stack.BaseContent(c.Base)
		}
		return w.Stack.OpenSource(c.Path)
	})
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Denied):
		return l, nil // shown without its hunks
	case err != nil:
		return l, err
	}
	if isText(l.before) && isText(after) {
		l.unit.hunks = textdiff.Hunks(l.before, after)
	}
	return l, nil
}

// unlessGone accepts that a running sandbox has removed the entry, or closed it to its owner.
func (l *looked) unlessGone(err error) error {
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition) || errdefs.Is(err, errdefs.Denied) {
		l.hidden = fmt.Sprintf("it cannot be read: %v", record.UnwrapErrno(err))
		return nil
	}
	return err
}

func isText(content []byte) bool {
	return len(content) <= textdiff.SizeLimit && !textdiff.IsBinary(content)
}

// read reads a file as far as it is compared, with the rights of as.
func read(at vpath.Path, whole bool, as func(func() error) error, open func() (*os.File, error)) (sum string, head []byte, err error) {
	var f *os.File
	err = as(func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	sum, head, err = manifest.ReadContent(f, textdiff.SizeLimit+1, whole)
	if err != nil {
		err = errdefs.New(record.DiskKind(err), "read %s: %w", at, err)
	}
	return sum, head, err
}
