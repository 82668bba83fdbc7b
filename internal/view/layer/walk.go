package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// walkNames calls do for each entry and whiteout below the delta directory root, parents
// first, with the handle of its directory. It has one descriptor open at a time, at any
// depth.
func walkNames(root int, do func(dir int, p vpath.Path, c storedChild) error) error {
	pending := []vpath.Path{vpath.Root}
	for len(pending) > 0 {
		p := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		dirs, err := walkOne(root, p, do)
		if err != nil {
			return err
		}
		pending = append(pending, dirs...)
	}
	return nil
}

// walkOne visits one directory and returns its subdirectories.
func walkOne(root int, p vpath.Path, do func(int, vpath.Path, storedChild) error) (dirs []vpath.Path, err error) {
	fd, err := openDirAt(root, nameenc.Path(p))
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	names, err := readStored(fd)
	if err != nil {
		return nil, err
	}
	for _, c := range names {
		q := p.Child(c.name)
		if err := do(fd, q, c); err != nil {
			return nil, err
		}
		if c.kind == nameenc.KindEntry && c.mode == unix.S_IFDIR {
			dirs = append(dirs, q)
		}
	}
	return dirs, nil
}
