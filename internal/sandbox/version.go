package sandbox

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/vpath"
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
}

func versionOf(p vpath.Path, i *layer.Info) Version {
	v := Version{Path: p.String(), ID: i.ID, Mode: i.Mode}
	// A directory's size and time move with what is applied below it.
	if !i.IsDir() {
		v.Size, v.Mtime = i.Size, i.Mtime
	}
	return v
}

// version names the delta's entry of the change.
func (c *change) version() Version {
	if c.Kind == layer.Deleted {
		return Version{Path: c.Path.String(), Deleted: true}
	}
	return versionOf(c.Path, &c.Info)
}

// DropVersions forgets the entries of the delta that still are what versions
// say and returns the paths of the others. It is for the process that owns
// the stack: a command that holds the sandbox's lock, or the supervisor, who
// then lets its view forget the paths too. Errors: Invalid for a path that is
// not escaped; those of layer.Stack.Drop.
func DropVersions(s *layer.Stack, versions []Version) (stale []vpath.Path, err error) {
	var paths []vpath.Path
	for _, v := range versions {
		text, err := vpath.Unescape(v.Path)
		if err != nil {
			return nil, err
		}
		p, err := vpath.Parse(text)
		if err != nil {
			return nil, err
		}
		same, err := v.holds(s, p)
		if err != nil {
			return nil, err
		}
		if same {
			paths = append(paths, p)
		} else {
			stale = append(stale, p)
		}
	}
	return stale, s.Drop(paths...)
}

// holds reports whether the view still shows v at p.
func (v Version) holds(s *layer.Stack, p vpath.Path) (bool, error) {
	info, err := s.Lookup(p)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Precondition): // or below what is no directory
		return v.Deleted, nil
	case err != nil:
		return false, err
	}
	return versionOf(p, &info) == v, nil
}
