package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// child is a name of a merged directory and the layer it comes from.
type child struct {
	name  string
	mode  uint32 // type bits
	shown uint64 // the inode number shown
	layer int
}

// list calls do for each visible name of v.
func (s *Stack) list(v *mergedDir, do func(child)) error {
	if err := s.listLayers(v, do); err != nil {
		return err
	}
	return s.listMountPoints(v, do)
}

func (s *Stack) listLayers(v *mergedDir, do func(child)) error {
	var seen map[string]struct{} // names that a higher layer has or hides
	for i, pt := range v.parts {
		if pt.origin == Source {
			return s.listSource(pt, seen, do)
		}
		more := i+1 < len(v.parts)
		names, err := readStored(pt.fd)
		if err != nil {
			return err
		}
		if more && seen == nil && len(names) > 0 {
			seen = make(map[string]struct{}, len(names))
		}
		// Entries before whiteouts: if a name has both, the entry counts.
		for _, n := range names {
			if _, ok := seen[n.name]; ok || n.kind != nameenc.KindEntry {
				continue
			}
			do(child{n.name, n.mode, s.shownIn(pt.fd, n), pt.layer})
		}
		if more {
			for _, n := range names {
				seen[n.name] = struct{}{}
			}
		}
	}
	return nil
}

// shownIn returns the inode number shown for an entry of the delta directory dir.
func (s *Stack) shownIn(dir int, c storedChild) uint64 {
	if !s.inodes.has(c.ino) {
		return ownNumber(c.ino)
	}
	stored, _ := nameenc.Entry(c.name)
	st, err := statAt(dir, stored)
	if err != nil {
		return ownNumber(c.ino)
	}
	return s.inodes.shown(&st)
}

func (s *Stack) listSource(pt part, seen map[string]struct{}, do func(child)) error {
	if pt.origin == Source && pt.rights.bits&mayRead == 0 {
		return unix.EACCES
	}
	return safefs.ReadNames(pt.fd, func(name []byte, mode uint32, ino uint64) error {
		if _, ok := seen[string(name)]; ok {
			return nil
		}
		if mode == 0 {
			st, err := statAt(pt.fd, string(name))
			if err == unix.ENOENT {
				return nil
			}
			if err != nil {
				return err
			}
			mode = st.kind()
		}
		if pt.leavesOut(string(name), mode == unix.S_IFDIR) || s.o.Plain && !isPlain(mode) {
			return nil
		}
		do(child{string(name), mode, ino, pt.layer})
		return nil
	})
}

// storedChild is an entry or a whiteout in a directory of a delta.
type storedChild struct {
	name string
	kind nameenc.Kind // nameenc.KindEntry or nameenc.KindWhiteout
	mode uint32
	ino  uint64
}

// readStored lists the delta directory fd by the names of the view.
func readStored(fd int) ([]storedChild, error) {
	var names []storedChild
	err := safefs.ReadNames(fd, func(raw []byte, mode uint32, ino uint64) error {
		stored := string(raw)
		kind, name, link := nameenc.Decode(stored)
		if kind != nameenc.KindEntry && kind != nameenc.KindWhiteout {
			return nil
		}
		if link != "" {
			target, err := readlinkAt(fd, link)
			name = nameenc.NameOf(target)
			if err == unix.ENOENT || err == unix.EINVAL || (err == nil && !nameenc.Matches(stored, name)) {
				return nil // not written by us
			}
			if err != nil {
				return err
			}
		}
		if mode == 0 {
			st, err := statAt(fd, stored)
			if err != nil {
				return err
			}
			mode = st.kind()
		}
		names = append(names, storedChild{name, kind, mode, ino})
		return nil
	})
	return names, err
}
