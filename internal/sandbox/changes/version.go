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

// Version identifies the state of a delta's entry that was applied or discarded, so that
// later changes of the entry are not dropped.
type Version struct {
	Path    string        `json:"path"` // escaped with vpath.Escape
	Deleted bool          `json:"deleted,omitempty"`
	ID      layer.FileID  `json:"id"`
	Mode    uint32        `json:"mode"`
	Size    int64         `json:"size"`
	Mtime   unix.Timespec `json:"mtime"`
	// Keep makes the delta keep the entry, with the source's present entry as base.
	Keep bool `json:"keep,omitempty"`
	// Made is the source's entry after an apply. It becomes the base of the delta's entry
	// if that is no longer this version. Nil means unknown.
	Made *layer.Base `json:"made,omitempty"`
	// Merged says that Made has changes of the source, too, that a later version of the entry does
	// not have. It never becomes a base then.
	Merged bool `json:"merged,omitempty"`
}

func versionOf(p vpath.Path, i *layer.Info) Version {
	v := Version{Path: vpath.Escape(string(p)), ID: i.ID, Mode: i.Mode}
	// An apply below a directory changes its size and time.
	if !i.IsDir() {
		v.Size, v.Mtime = i.Size, i.Mtime
	}
	return v
}

// Version returns the version of the delta's entry of the change.
func (c *Change) Version() Version {
	if c.Kind == layer.Deleted {
		return Version{Path: vpath.Escape(string(c.Path)), Deleted: true}
	}
	return versionOf(c.Path, &c.Info)
}

// IsBaseOnly reports whether v is a version that no entry has: only its Made counts.
func (v *Version) IsBaseOnly() bool { return !v.Deleted && v.Mode == 0 }

// PathsOf returns the paths of versions. Errors: Invalid for a path that is not escaped; the paths
// before it are returned too.
func PathsOf(versions []Version) ([]vpath.Path, error) {
	paths := make([]vpath.Path, 0, len(versions))
	for _, v := range versions {
		p, err := v.At()
		if err != nil {
			return paths, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// DropVersions drops the entries of the delta that still have these versions, or keeps
// those marked with Keep. For the others, it records Version.Made as the base and returns
// their paths. The process that owns the stack calls it: a command with the sandbox's lock,
// or the supervisor, which then also invalidates the paths in its view. Errors: Invalid for
// a path that is not escaped; those of layer.Stack.Drop.
func DropVersions(s *layer.Stack, versions []Version) (stale []vpath.Path, err error) {
	current := map[vpath.Path]Version{}
	made := map[vpath.Path]layer.Base{}
	for _, v := range versions {
		p, err := v.At()
		if err != nil {
			return nil, err
		}
		v.noteMade(p, made)
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
	if err := rebaseKept(s, current); err != nil {
		return nil, err
	}
	paths := slices.Clone(stale)
	gone := map[vpath.Path]bool{} // directories deleted with everything below
	for p, v := range current {
		if v.Deleted && !noteGone(s, p, current, gone) {
			delete(current, p)
		}
		paths = append(paths, p)
	}
	// Check again while the stack is locked: a directory that exists again must not be
	// deleted again.
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

// noteMade adds what an apply has made of the version at p, if that may become a base.
func (v *Version) noteMade(p vpath.Path, made map[vpath.Path]layer.Base) {
	if v.Made != nil && !v.Merged {
		made[p] = *v.Made
	}
}

// rebaseKept rebases the entries that stay, and removes them from current.
func rebaseKept(s *layer.Stack, current map[vpath.Path]Version) error {
	for p, v := range current {
		if !v.Keep {
			continue
		}
		if err := s.Rebase(p); err != nil && !errdefs.Is(err, errdefs.NotFound) { // it may have been removed again
			return err
		}
		delete(current, p)
	}
	return nil
}

// noteGone adds to gone the parent directories of the deleted p that the view does not show
// and that are not dropped. It returns false if a file that is not dropped replaces one of
// them: then nothing below can be dropped.
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

// deleteAgain deletes the directories that show again because one deleted path below was
// dropped, if they show no entry.
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

// At returns the path of the entry. Errors: Invalid if it is not escaped.
func (v Version) At() (vpath.Path, error) {
	text, err := vpath.Unescape(v.Path)
	if err != nil {
		return "", err
	}
	return vpath.ParseOwn(text)
}

// Holds reports whether the view still shows v at p.
func (v Version) Holds(s *layer.Stack, p vpath.Path) (bool, error) {
	info, err := s.LookupStored(p)
	return v.isAt(p, info, err)
}

// isAt is Holds for the result of Lookup.
func (v Version) isAt(p vpath.Path, info layer.Info, err error) (bool, error) {
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition): // ENOTDIR
		return v.Deleted, nil
	case err != nil:
		return false, err
	}
	v.Keep, v.Made, v.Merged = false, nil, false
	return versionOf(p, &info) == v, nil
}
