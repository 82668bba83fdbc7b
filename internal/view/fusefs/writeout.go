package fusefs

import "golang.org/x/sys/unix"

// writeout has the disk begin with a large file while it is still being
// written: each byte is copied twice more here than natively, and a program
// that syncs at the end would wait for the disk after all of it.
type writeout struct {
	jobs chan *handle // in use until they are done
}

const (
	// writeoutBytes is how much of one file may be written before the disk
	// begins: what is smaller is often removed again before it has to be there.
	writeoutBytes = 8 << 20
	// bulkBytes is the size from which on a write counts: small ones, as of a
	// database, are better left to the kernel to gather.
	bulkBytes = 64 << 10
	// writeoutsAhead is how many files may wait for the disk to begin; of more,
	// the kernel takes care by itself.
	writeoutsAhead = 16
)

func (w *writeout) init() { w.jobs = make(chan *handle, writeoutsAhead) }

// wrote is told of each write to h, while it is in use for it.
func (fs *FS) wrote(h *handle, size int) {
	if size < bulkBytes {
		return
	}
	h.mu.Lock()
	h.unsent += int64(size)
	due := h.unsent >= writeoutBytes
	if due {
		h.unsent = 0
	}
	h.mu.Unlock()
	if !due {
		return
	}
	fs.fds.retain(h)
	select {
	case fs.writeout.jobs <- h:
		fs.stats.count(opWriteout)
	default:
		fs.fds.release(h)
	}
}

// runWriteout begins to write until the mount has ended.
func (fs *FS) runWriteout() {
	for {
		select {
		case h := <-fs.writeout.jobs:
			// It does not wait for the disk, and what it does not do is done later.
			_ = unix.SyncFileRange(h.file.Fd(), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
			fs.fds.release(h)
		case <-fs.ended:
			for len(fs.writeout.jobs) > 0 {
				fs.fds.release(<-fs.writeout.jobs)
			}
			return
		}
	}
}
