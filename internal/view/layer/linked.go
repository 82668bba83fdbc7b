package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Linked returns the names in the view of each file of the delta that has
// several. It visits the whole delta, unless the last visit found no such file and none was made
// since.
func (s *Stack) Linked() (map[FileID][]vpath.Path, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	linked := map[FileID][]vpath.Path{}
	if s.unlinked.Load() {
		return linked, nil
	}
	unlinked := true
	for _, l := range s.layers[:s.bottom()] {
		err := walkNames(l.root, func(dir int, p vpath.Path, c storedChild) error {
			if c.kind != nameenc.KindEntry || c.mode == unix.S_IFDIR {
				return nil
			}
			stored, _ := nameenc.Entry(c.name)
			st, err := statAt(dir, stored)
			if err != nil || st.nlink < 2 {
				return err
			}
			unlinked = false
			shown, err := s.lookup(p)
			if id := (FileID{st.dev, st.ino, st.birth}); err == nil && shown.ID == id {
				linked[id] = append(linked[id], p)
			}
			return nil // on an error or another id, another layer has the name or hides it
		})
		if err != nil {
			return nil, wrap("list links", vpath.Root, err)
		}
	}
	s.unlinked.Store(unlinked)
	for id, names := range linked {
		if len(names) < 2 {
			delete(linked, id) // its other names are orphans
		}
	}
	return linked, nil
}
