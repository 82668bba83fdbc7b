package layer

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// NextHead is a head that is made beside that of a stack which no process has open, and then takes
// its place in one step. Either Put or Abandon ends it.
type NextHead struct {
	storePath, name, below string
	store                  int
}

// PrepareHead makes an empty head in the directory store, above the frozen layer below; "" is the
// source. merged is the layer of which it will have the changes too; "" is none. The caller opens a
// stack in Dir, changes and closes it. Errors: Exhausted; Precondition if below is missing.
func PrepareHead(store, below, merged string) (*NextHead, error) {
	h := &NextHead{storePath: store, name: newLayerName(), below: below}
	return h, wrap("prepare", vpath.Root, h.prepare(merged))
}

func (h *NextHead) prepare(merged string) error {
	var err error
	if h.store, err = openStore(h.storePath); err != nil {
		return err
	}
	err = h.makeIn(merged)
	if err != nil {
		discardLayer(h.store, h.name)
		unix.Close(h.store)
	}
	return err
}

func (h *NextHead) makeIn(merged string) error {
	like := -1
	if h.below != "" {
		l, err := openLayer(h.store, h.below)
		if err == unix.ENOENT {
			return errdefs.New(errdefs.Precondition, "layer %s: %w", h.below, errLayerGone)
		}
		if err != nil {
			return err
		}
		defer l.close()
		like = l.root
	}
	home, top, err := makeHead(h.store, h.name, h.below, like)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	unix.Close(top)
	if merged == "" {
		return nil
	}
	return writeLineage(home, []string{merged}, nil)
}

// Dir returns the host path of the head.
func (h *NextHead) Dir() string { return filepath.Join(h.storePath, h.name) }

// Put makes the head durable and puts it in the place of the one in dir, which must be an empty one
// above the same layer. Errors: Precondition if it is not; Exhausted.
func (h *NextHead) Put(dir string) error {
	err := wrap("put", vpath.Root, h.put(dir))
	h.Abandon() // of the exchanged head, if it was put
	return err
}

func (h *NextHead) put(dir string) error {
	if err := unix.Syncfs(h.store); err != nil {
		return err
	}
	failpoint.At("next head: durable")
	home, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	if err := h.replaces(home); err != nil {
		return err
	}
	if err := h.keepLineage(home); err != nil {
		return err
	}
	if err := exchange(h.store, h.name, home, dir); err != nil {
		return err
	}
	failpoint.At("next head: put")
	return nil
}

// replaces returns an error if the head in home has what the next one does not have.
func (h *NextHead) replaces(home int) error {
	below, err := readBelow(home)
	if err != nil {
		return err
	}
	root, err := openDir(home, "top")
	if err == unix.ENOENT && below == h.below {
		return nil // nothing has run in it
	}
	if err != nil {
		return err
	}
	defer unix.Close(root)
	empty, err := isEmptyDelta(root)
	if err == nil && (!empty || below != h.below) {
		err = errdefs.New(errdefs.Precondition, "the sandbox has changed meanwhile: try again")
	}
	return err
}

// keepLineage adds what the head that goes was made of, other than the layer below, to the lineage
// of the one that comes.
func (h *NextHead) keepLineage(home int) error {
	from, err := lineageBeside(home, h.below)
	if err != nil || len(from.Parents)+len(from.Earlier) == 0 {
		return err
	}
	next, err := openDir(h.store, h.name)
	if err != nil {
		return err
	}
	defer unix.Close(next)
	to, err := lineageBeside(next, h.below)
	if err != nil {
		return err
	}
	return writeLineage(next, union(to.Parents, from.Parents), union(to.Earlier, from.Earlier))
}

// lineageBeside returns the lineage of the head that is open as home without the layer below.
func lineageBeside(home int, below string) (Lineage, error) {
	l, err := readLineage(home)
	l.Parents = slices.DeleteFunc(l.Parents, func(name string) bool { return name == below })
	return l, err
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// Abandon removes the head.
func (h *NextHead) Abandon() {
	discardLayer(h.store, h.name)
	unix.Close(h.store)
}

// CopyBase records what p was in the source as another stack, from, has recorded it in base, with
// the content that it has kept. Errors: Internal, Exhausted.
func (s *Stack) CopyBase(p vpath.Path, from *Stack, base *Base) error {
	if base == nil || base.Absent {
		return s.Record(p, base)
	}
	bare := Base{
		Dev: base.Dev, Ino: base.Ino, Size: base.Size, Mode: base.Mode, Nlink: base.Nlink,
		Mtime: base.Mtime, Ctime: base.Ctime, SHA256: base.SHA256,
	}
	if err := s.copyBaseContent(&bare, from, base); err != nil {
		return wrap("record", p, err)
	}
	return s.Record(p, &bare)
}

func (s *Stack) copyBaseContent(to *Base, from *Stack, base *Base) error {
	f, err := from.journal.Content(base)
	if err != nil {
		return nil //nolint:nilerr // none was kept, or it is damaged: the record stays without
	}
	defer f.Close()
	if base.SHA256 == nil {
		return s.journal.Share(to, int(f.Fd()))
	}
	content := make([]byte, base.Size)
	if _, err := f.ReadAt(content, 0); err != nil && base.Size > 0 {
		return err
	}
	whole := *to
	if err := s.journal.Keep(&whole, content); err != nil {
		return err
	}
	*to = whole
	return nil
}

// Fill gives f, a new file, the first size bytes of src. Blocks are shared where the file system
// can, and holes stay holes. Errors: as WriteAt.
func (f *File) Fill(src *os.File, size int64) error {
	fd := int(src.Fd())
	st, err := statFd(fd)
	if err != nil {
		return wrap("write", f.path, err)
	}
	stored := st.blocks * blockBytes
	if st.size == size && size > 0 && f.change(0, stored, func() error { return unix.IoctlFileClone(f.fd, fd) }) == nil {
		return nil
	}
	return wrap("write", f.path, f.change(0, min(size, stored), func() error { return copyData(f.fd, fd, size) }))
}
