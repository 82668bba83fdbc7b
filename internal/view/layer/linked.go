package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Linked returns the names in the view of each file of the delta that has several. It visits the
// whole delta when it is called first, and after what changes many entries at once. Else it looks
// only at names that were linked, moved or removed since the last call.
func (s *Stack) Linked() (map[FileID][]vpath.Path, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	k := &s.links
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	switch {
	case !k.known || s.o.ReadOnly: // another process may write what is ReadOnly
		err = s.findLinks(k)
	default:
		err = s.followLinks(k)
	}
	if err != nil {
		return nil, wrap("list links", vpath.Root, err)
	}
	return k.linked(), nil
}

// findLinks finds the files with several names in all layers but the source. The caller holds ns
// and k.mu.
func (s *Stack) findLinks(k *links) error {
	k.reset()
	none := true
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
			none = false
			shown, err := s.lookup(p)
			if id := (FileID{st.dev, st.ino, st.birth}); err == nil && shown.ID == id {
				k.add(p, id)
			}
			return nil // on an error or another id, another layer has the name or hides it
		})
		if err != nil {
			return err
		}
	}
	k.known, k.none = true, none
	return nil
}

// followLinks looks at the names that may have changed. The caller holds ns and k.mu.
func (s *Stack) followLinks(k *links) error {
	for p := range k.changed {
		i, err := s.lookup(p)
		if err != nil && err != unix.ENOENT && err != unix.ENOTDIR {
			return err
		}
		k.remove(p)
		if err == nil && i.Origin != Source && !i.IsDir() {
			k.add(p, i.ID)
		}
		delete(k.changed, p)
	}
	return nil
}
