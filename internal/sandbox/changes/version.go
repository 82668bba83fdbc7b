package changes

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Version names the state of a delta's entry that was applied or discarded,
// so that what was written to it since is not forgotten with it.
type Version struct {
	Path    string        `json:"path"` // escaped by vpath.Escape
	Deleted bool          `json:"deleted,omitempty"`
	ID      layer.FileID  `json:"id"`
	Mode    uint32        `json:"mode"`
	Size    int64         `json:"size"`
	Mtime   unix.Timespec `json:"mtime"`
	// Keep has the delta keep the entry, as made of what the source has now.
	Keep bool `json:"keep,omitempty"`
	// Made is what an apply has made of the source there, which the entry is made
	// of from then on if it is not this version any more; nil: nothing that is known.
	Made *layer.Base `json:"made,omitempty"`
}

func versionOf(p vpath.Path, i *layer.Info) Version {
	v := Version{Path: vpath.Escape(string(p)), ID: i.ID, Mode: i.Mode}
	// A directory's size and time move with what is applied below it.
	if !i.IsDir() {
		v.Size, v.Mtime = i.Size, i.Mtime
	}
	return v
}

// Version names the delta's entry of the change.
func (c *Change) Version() Version {
	if c.Kind == layer.Deleted {
		return Version{Path: vpath.Escape(string(c.Path)), Deleted: true}
	}
	return versionOf(c.Path, &c.Info)
}

// DropVersions forgets the entries of the delta that still are what versions
// say, or keeps those that are so marked, and returns the paths of the others,
// which have then been made of what was applied (Version.Made). It is for the
// process that owns the stack: a command that holds the sandbox's lock, or the
// supervisor, who then lets its view forget the paths too. Errors: Invalid for a path that is
// not escaped; those of layer.Stack.Drop.
func DropVersions(s *layer.Stack, versions []Version) (stale []vpath.Path, err error) {
	current := map[vpath.Path]Version{}
	made := map[vpath.Path]layer.Base{}
	for _, v := range versions {
		p, err := v.At()
		if err != nil {
			return nil, err
		}
		if v.Made != nil {
			made[p] = *v.Made
		}
		same, err := v.Holds(s, p)
		switch {
		case err != nil:
			return nil, err
		case same:
			current[p] = v
		default:
			stale = append(stale, p)
		}
	}
	if err := adoptKept(s, current); err != nil {
		return nil, err
	}
	paths := slices.Clone(stale)
	gone := map[vpath.Path]bool{} // directories deleted with all below
	for p, v := range current {
		if v.Deleted && !noteGone(s, p, current, gone) {
			delete(current, p)
		}
		paths = append(paths, p)
	}
	// Once more, now that nobody can write in between: a directory that is there
	// again is not to be deleted again.
	_, err = s.DropMatching(func(p vpath.Path, i layer.Info, err error) bool {
		if gone[p] {
			gone[p] = err != nil
			return false
		}
		v, mayGo := current[p]
		if !mayGo {
			return false
		}
		same, err := v.isAt(p, i, err)
		if !same || err != nil {
			stale = append(stale, p)
			return false
		}
		return true
	}, made, slices.AppendSeq(paths, maps.Keys(gone))...)
	if err != nil {
		return stale, err
	}
	maps.DeleteFunc(gone, func(_ vpath.Path, still bool) bool { return !still })
	return stale, deleteAgain(s, slices.SortedFunc(maps.Keys(gone), deepestFirst))
}

// adoptKept takes the versions out of current whose entries stay.
func adoptKept(s *layer.Stack, current map[vpath.Path]Version) error {
	for p, v := range current {
		if !v.Keep {
			continue
		}
		if err := s.Rebase(p); err != nil && !errdefs.Is(err, errdefs.NotFound) { // it may be gone again
			return err
		}
		delete(current, p)
	}
	return nil
}

// noteGone adds to gone the directories above the deleted p that the view does
// not show either and that are not dropped themselves. It reports false if a
// file that is not dropped stands in place of one: as long as it does, there
// is nothing to forget below it.
func noteGone(s *layer.Stack, p vpath.Path, dropped map[vpath.Path]Version, gone map[vpath.Path]bool) bool {
	for dir := p.Dir(); !dir.IsRoot(); dir = dir.Dir() {
		info, err := s.Lookup(dir)
		if err == nil {
			_, goes := dropped[dir]
			return info.IsDir() || goes
		}
		if _, goes := dropped[dir]; !goes && errdefs.Is(err, errdefs.NotFound) {
			gone[dir] = true
		}
	}
	return true
}

// deleteAgain deletes the directories that show again, because one path was
// taken out of their deletion, if nothing shows in them.
func deleteAgain(s *layer.Stack, dirs []vpath.Path) error {
	for _, dir := range dirs {
		err := s.Rmdir(dir, nil)
		if err != nil && !errdefs.Is(err, errdefs.NotFound) && !errdefs.Is(err, errdefs.Precondition) {
			return err
		}
	}
	return nil
}

func deepestFirst(a, b vpath.Path) int {
	return cmp.Or(len(b)-len(a), strings.Compare(string(a), string(b)))
}

// At returns the path of the entry. Errors: Invalid for one that is not escaped.
func (v Version) At() (vpath.Path, error) {
	text, err := vpath.Unescape(v.Path)
	if err != nil {
		return "", err
	}
	return vpath.ParseOwn(text)
}

// Holds reports whether the view still shows v at p.
func (v Version) Holds(s *layer.Stack, p vpath.Path) (bool, error) {
	info, err := s.Lookup(p)
	return v.isAt(p, info, err)
}

// isAt is holds for what Lookup answered.
func (v Version) isAt(p vpath.Path, info layer.Info, err error) (bool, error) {
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition): // or below what is no directory
		return v.Deleted, nil
	case err != nil:
		return false, err
	}
	v.Keep, v.Made = false, nil
	return versionOf(p, &info) == v, nil
}
