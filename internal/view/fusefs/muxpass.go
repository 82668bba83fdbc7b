package fusefs

import "github.com/hanwen/go-fuse/v2/fuse"

// The methods of this file only pass requests on. The root refuses them, except those
// to which every view gives the same reply: ENOSYS counts for the whole connection.

// SetAttr is that of the view.
func (m *mux) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.SetAttr(cancel, in, out)
	}
	return refused
}

// Mknod is that of the view.
func (m *mux) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Mknod(cancel, in, name, out)
	}
	return refused
}

// Mkdir is that of the view.
func (m *mux) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Mkdir(cancel, in, name, out)
	}
	return refused
}

// Unlink is that of the view.
func (m *mux) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Unlink(cancel, in, name)
	}
	return refused
}

// Rmdir is that of the view.
func (m *mux) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Rmdir(cancel, in, name)
	}
	return refused
}

// Symlink is that of the view.
func (m *mux) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Symlink(cancel, in, target, name, out)
	}
	return refused
}

// Readlink is that of the view.
func (m *mux) Readlink(cancel <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Readlink(cancel, in)
	}
	return nil, refused
}

// Access is that of the view.
func (m *mux) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Access(cancel, in)
	}
	return refused
}

// Create is that of the view.
func (m *mux) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Create(cancel, in, name, out)
	}
	return refused
}

// Tmpfile is that of the view.
func (m *mux) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Tmpfile(cancel, in, out)
	}
	return refused
}

// Open is that of the view.
func (m *mux) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Open(cancel, in, out)
	}
	return refused
}

// Read is that of the view.
func (m *mux) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Read(cancel, in, buf)
	}
	return nil, refused
}

// Lseek is that of the view.
func (m *mux) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Lseek(cancel, in, out)
	}
	return refused
}

// Write is that of the view.
func (m *mux) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Write(cancel, in, data)
	}
	return 0, refused
}

// Writev is that of the view.
func (m *mux) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Writev(cancel, in, data)
	}
	return 0, refused
}

// Ioctl is that of the view.
func (m *mux) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, inbuf []byte, out *fuse.IoctlOut, outbuf []byte) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Ioctl(cancel, in, inbuf, out, outbuf)
	}
	return refused
}

// Flush is that of the view.
func (m *mux) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Flush(cancel, in)
	}
	return refused
}

// Fsync is that of the view.
func (m *mux) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Fsync(cancel, in)
	}
	return refused
}

// Fallocate is that of the view.
func (m *mux) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.Fallocate(cancel, in)
	}
	return refused
}

// StatFs shows the quota of the view.
func (m *mux) StatFs(cancel <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	if fs := m.at(in.NodeId); fs != nil {
		return fs.StatFs(cancel, in, out)
	}
	return m.views[0].StatFs(cancel, in, out)
}

// OpenDir is the same in every view.
func (m *mux) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return m.views[0].OpenDir(cancel, in, out)
}

// FsyncDir is the same in every view.
func (m *mux) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.views[0].FsyncDir(cancel, in)
}

// Statx is the same in every view.
func (m *mux) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	return m.views[0].Statx(cancel, in, out)
}

// GetLk is the same in every view.
func (m *mux) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	return m.views[0].GetLk(cancel, in, out)
}

// SetLk is the same in every view.
func (m *mux) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return m.views[0].SetLk(cancel, in)
}

// SetLkw is the same in every view.
func (m *mux) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return m.views[0].SetLkw(cancel, in)
}

// GetXAttr is the same in every view.
func (m *mux) GetXAttr(cancel <-chan struct{}, in *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	return m.views[0].GetXAttr(cancel, in, attr, dest)
}

// ListXAttr is the same in every view.
func (m *mux) ListXAttr(cancel <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	return m.views[0].ListXAttr(cancel, in, dest)
}

// SetXAttr is the same in every view.
func (m *mux) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	return m.views[0].SetXAttr(cancel, in, attr, data)
}

// RemoveXAttr is the same in every view.
func (m *mux) RemoveXAttr(cancel <-chan struct{}, in *fuse.InHeader, attr string) fuse.Status {
	return m.views[0].RemoveXAttr(cancel, in, attr)
}
