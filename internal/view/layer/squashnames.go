package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// otherNames gives the copy of the file st its names beside p now. Names that come later in the
// walk would be names of the old file if this process were killed, or the disk full, before.
func (q *squashing) otherNames(p vpath.Path, st *stat) error {
	names, err := q.s.frozenNames(q.n, st.ino)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == p {
			continue
		}
		if err := q.pathTo(name, st); err != nil {
			return err
		}
	}
	return nil
}

// pathTo copies the directories above p, a name of the file st, and then p, unless to hides it.
func (q *squashing) pathTo(p vpath.Path, st *stat) error {
	for dir := range p.Ancestors() {
		if dir.IsRoot() {
			continue
		}
		if merge, err := q.early(dir, unix.S_IFDIR); err != nil || !merge {
			return err
		}
	}
	_, err := q.early(p, st.kind())
	return err
}

// early is name for an entry that the walk comes to later.
func (q *squashing) early(p vpath.Path, kind uint32) (merge bool, err error) {
	to, err := openDirAt(q.to, nameenc.Path(p.Dir()))
	if err != nil {
		return false, err
	}
	defer unix.Close(to)
	from, err := openDirAt(q.from, nameenc.Path(p.Dir()))
	if err != nil {
		return false, err
	}
	defer unix.Close(from)
	err = keepingTimes(to, func() error {
		merge, _, err = q.name(to, from, p, storedChild{name: p.Base(), kind: nameenc.KindEntry, mode: kind})
		return err
	})
	return merge, err
}
