package fusefs

import (
	"path/filepath"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/fuseconn"
)

// View is one of several views on one connection.
type View struct {
	Name string // of its directory
	Options
}

// MountAll mounts several views on the directory mountpoint, each at a directory with its
// name, over one connection. They end together: Unmount and Abort of one are those of all.
// The caller shows each directory at a place of its own. What they share shows nowhere: the
// root lists nothing, and a rename or a link from one view into another fails with EXDEV.
// The first view may keep as many files open as a single one, and has most of the watches;
// the others share half as many files, and a quarter of the watches. The rest is as for Mount.
func MountAll(mountpoint string, views []View) ([]*FS, error) {
	m := &mux{names: map[string]*FS{}}
	if err := m.open(mountpoint, views); err != nil {
		m.end()
		return nil, errdefs.New(errdefs.KindOf(err), "mount the views: %w", err)
	}
	first := m.views[0]
	conn, err := fuseconn.Mount(first.mountpoint, m, fuseconn.Options{Name: fsName, Library: first.library(), Logger: first.log})
	if err != nil {
		m.end()
		return nil, errdefs.New(mountKind(err), "mount the views: %w", err)
	}
	for _, fs := range m.views {
		fs.conn = conn
	}
	serve(conn, m.views...)
	return m.views, nil
}

func (m *mux) open(mountpoint string, views []View) error {
	if len(views) == 0 || len(views) >= maxViews {
		return errdefs.New(errdefs.Invalid, "%d views: want 1 to %d", len(views), maxViews-1)
	}
	for i, v := range views {
		if _, known := m.names[v.Name]; known || v.Name == "" || v.Name != filepath.Base(v.Name) {
			return errdefs.New(errdefs.Invalid, "view %q: the name is malformed or not unique", v.Name)
		}
		o := v.Options
		o.number, o.views = i+1, len(views)
		if i > 0 && o.Descriptors == 0 {
			o.Descriptors = max(8, o.descriptors()/2/(len(views)-1))
		}
		fs, err := newFS(mountpoint, o)
		if err != nil {
			return err
		}
		m.views, m.names[v.Name] = append(m.views, fs), fs
	}
	return nil
}

// mux passes each request to the view of its node. Only the requests of the root are its
// own.
type mux struct {
	views []*FS
	names map[string]*FS
}

var _ fuse.RawFileSystem = (*mux)(nil)

// end releases the views of a mount that failed.
func (m *mux) end() {
	for _, fs := range m.views {
		fs.end()
	}
}

// at returns the view of a node, or nil for the root.
func (m *mux) at(id uint64) *FS {
	if i := id >> viewShift; i > 0 && i <= uint64(len(m.views)) {
		return m.views[i-1]
	}
	return nil
}

// both returns the view of two nodes. It is nil if they are in two.
func (m *mux) both(a, b uint64) *FS {
	if fs := m.at(a); fs == m.at(b) {
		return fs
	}
	return nil
}

// apart is the reply to a request with nodes of two views.
const apart = fuse.Status(unix.EXDEV)

// enter describes the root of the view, of which the kernel then knows for good that it has
// this name.
func (fs *FS) enter(out *fuse.EntryOut) fuse.Status {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	info, st := fs.stat(fs.root)
	if !st.Ok() {
		return st
	}
	out.NodeId, out.EntryValid = fs.root.id, forever
	out.AttrValid = attrLifetime(fs.root, fs.root, &info)
	fs.fill(fs.root, &info, &out.Attr)
	return fuse.OK
}

// Lookup finds a view by its name.
func (m *mux) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Lookup(cancel, in, name, out)
	}
	if fs := m.names[name]; fs != nil {
		return fs.enter(out)
	}
	return absent
}

// GetAttr describes the root: a directory that everybody may search.
func (m *mux) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.GetAttr(cancel, in, out)
	}
	out.AttrValid = forever
	out.Attr = fuse.Attr{
		Ino: fuse.FUSE_ROOT_ID, Mode: unix.S_IFDIR | 0o555, Nlink: 1, Size: dirSize, Blocks: dirBlocks, Blksize: blockSize,
		Owner: m.views[0].owner(),
	}
	return fuse.OK
}

// ReadDir lists nothing of the root.
func (m *mux) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.ReadDir(cancel, in, out)
	}
	return fuse.OK
}

// ReadDirPlus lists nothing of the root either.
func (m *mux) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.ReadDirPlus(cancel, in, out)
	}
	return fuse.OK
}

// Rename moves a name within a view.
func (m *mux) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if fs := m.both(in.NodeId, in.Newdir); fs != nil {
		return fs.Rename(cancel, in, oldName, newName)
	}
	return apart
}

// Link gives a file another name in its view.
func (m *mux) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if fs := m.both(in.NodeId, in.Oldnodeid); fs != nil {
		return fs.Link(cancel, in, name, out)
	}
	return apart
}

// CopyFileRange copies within a view. Between two, the kernel copies by itself after this
// reply.
func (m *mux) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	if fs := m.both(in.NodeId, in.NodeIdOut); fs != nil {
		return fs.CopyFileRange(cancel, in)
	}
	return 0, apart
}

// Forget drops a node that the kernel no longer needs.
func (m *mux) Forget(id, count uint64) {
	if fs := m.at(id); fs != nil {
		fs.Forget(id, count)
	}
}

// Release never comes, since Open never succeeds.
func (m *mux) Release(<-chan struct{}, *fuse.ReleaseIn) {}

// ReleaseDir never comes either.
func (m *mux) ReleaseDir(*fuse.ReleaseIn) {}

// String names the file system to the library.
func (m *mux) String() string { return fsName }

// SetDebug does nothing: a debug log must not contain paths of hidden files.
func (m *mux) SetDebug(bool) {}

// Init is not called: only the library's own server calls it.
func (m *mux) Init(*fuse.Server) {}

// OnUnmount is not called either.
func (m *mux) OnUnmount() {}
