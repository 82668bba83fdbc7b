package apply

import (
	"cmp"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// Shown has the changes of a server's sandbox that the client has shown. The client applies
// no other change to its directory, whatever the server sends.
type Shown struct {
	entries manifest.Manifest
	holders map[vpath.Path]bool // parent directories of the entries
}

// NewShown returns a Shown with the changes of a manifest.
func NewShown(entries manifest.Manifest) *Shown {
	s := &Shown{entries: entries, holders: map[vpath.Path]bool{}}
	for p := range entries {
		for dir := range p.Ancestors() {
			s.holders[dir] = true
		}
	}
	return s
}

// Manifest returns the changes.
func (s *Shown) Manifest() manifest.Manifest { return s.entries }

// ShownOf returns the changes that r, a result of review.Of, shows.
func ShownOf(r *review.Review) (*Shown, error) {
	var list []CarriedChange
	for _, f := range r.Files() {
		if f.Own || f.LeftOut != "" {
			continue
		}
		c := CarriedChange{Path: f.Path, Status: f.Status}
		if f.New != nil {
			c.Mode, c.Target = f.New.Mode, f.New.Target
		}
		if f.Status != changes.Deleted && c.Mode&record.TypeBits == unix.S_IFREG {
			content, err := r.Content(&f)
			if err != nil {
				return nil, err
			}
			c.SHA256 = content.SHA256
		}
		list = append(list, c)
	}
	return ShownChanges(list), nil
}

// ShownChanges returns a Shown with these changes.
func ShownChanges(list []CarriedChange) *Shown {
	entries := manifest.Manifest{}
	for _, c := range list {
		e := manifest.Entry{Added: c.Status == changes.Added}
		if c.Status != changes.Deleted {
			e.Mode, e.Target = shownMode(c.Mode), record.HostPath(c.Target).String()
		}
		if e.IsRegular() {
			if e.SHA256 = c.SHA256; e.SHA256 == "" { // too large to have a hash
				continue
			}
		}
		entries[c.Path] = e
	}
	return NewShown(entries)
}

// shownMode returns the relevant part of a mode.
func shownMode(mode uint32) uint32 {
	switch mode & record.TypeBits {
	case unix.S_IFDIR:
		return mode & (record.TypeBits | record.StickyBits)
	case unix.S_IFLNK:
		return unix.S_IFLNK
	}
	return mode & (record.TypeBits | record.PermBits)
}

// Beside returns the union of s and before. At and below the paths it uses s only.
func (s *Shown) Beside(before *Shown, paths []vpath.Path) *Shown {
	if before == nil || len(paths) == 0 {
		return s
	}
	all, shown := maps.Clone(before.entries), changes.Selection(paths)
	maps.DeleteFunc(all, func(p vpath.Path, _ manifest.Entry) bool { return shown(p) })
	maps.Copy(all, s.entries)
	return NewShown(all)
}

// Admit returns a change that may be applied, with the hash that its content must have.
// Errors: Internal for a change that differs from the shown one. A server that works
// correctly reports such changes itself.
func (s *Shown) Admit(c CarriedChange) (CarriedChange, error) {
	if !isCarried(c.Outcome) {
		return c, nil
	}
	if c.Status == changes.Deleted {
		c.Mode, c.Target = 0, ""
	}
	want, is := s.entries[c.Path]
	if !is && s.implies(c) {
		return c, nil
	}
	if !is || shownMode(c.Mode) != want.Mode || record.HostPath(c.Target).String() != want.Target {
		return c, errdefs.New(errdefs.Internal, "the server sent a change of %s that it did not show: nothing is applied; run agentfense diff again to see the present changes", c.Path)
	}
	c.SHA256 = cmp.Or(want.SHA256, c.SHA256)
	return c, nil
}

// implies reports whether a shown change implies c: c makes or deletes a directory that
// contains the shown change.
func (s *Shown) implies(c CarriedChange) bool {
	return s.holders[c.Path] && (c.Status == changes.Deleted || c.Status == changes.Added && c.Mode&record.TypeBits == unix.S_IFDIR)
}
