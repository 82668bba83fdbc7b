package fusefs

import "golang.org/x/sys/unix"

// writeout starts the writeback of a large file while a program still writes it. Otherwise
// a program that syncs at the end would wait for the disk in addition to the two extra
// copies of each byte that FUSE makes.
type writeout struct {
	jobs chan *handle // in use until done
}

const (
	// writeoutBytes is how much of one file may be written before writeback starts. Smaller
	// files are often removed before the kernel writes them back.
	writeoutBytes = 8 << 20
	// bulkBytes is the smallest write that counts. The kernel gathers smaller writes, such
	// as a database's, better.
	bulkBytes = 64 << 10
	// writeoutsAhead is how many files may wait for their writeout. The kernel writes
	// further ones back later.
	writeoutsAhead = 16
)

func (w *writeout) init() { w.jobs = make(chan *handle, writeoutsAhead) }

// wrote is called after each write to h, while h is in use.
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

// runWriteout starts writebacks until the mount has ended.
func (fs *FS) runWriteout() {
	for {
		select {
		case h := <-fs.writeout.jobs:
			// It does not wait for the disk. On an error the kernel writes the pages back
			// later.
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
