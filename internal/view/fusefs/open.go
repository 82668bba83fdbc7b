package fusefs

import "github.com/hanwen/go-fuse/v2/fuse"

// Open is not implemented, so the kernel opens files itself, by the mode bits, and sends
// neither OPEN nor RELEASE again. It is while uses are recorded, see Learn.
func (fs *FS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	fs.stats.count(opOpen)
	if fs.learning.Load() != nil {
		return fs.opened(in, out)
	}
	return fuse.ENOSYS
}

// Flush is not implemented: there is nothing to flush, writes go through.
func (fs *FS) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status {
	fs.stats.count(opFlush)
	return fuse.ENOSYS
}

// Release comes for files that were opened before the first Open was answered, or while uses are
// recorded.
func (fs *FS) Release(<-chan struct{}, *fuse.ReleaseIn) {}

// Access is not called: the kernel checks the mode bits.
func (fs *FS) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }
