package journal

import "golang.org/x/sys/unix"

// WriteOut writes the log up to the end of at to the disk. It reports whether the
// next flush of the disk's cache makes that durable; fdatasync(2) of any file on
// that disk flushes it. The caller then calls ConfirmFlush. That works only for
// records that overwrite durable zeros, with Options.InPlace: sync_file_range(2)
// then does all that fdatasync(2) does, except the flush.
func (j *Journal) WriteOut(at Span) bool {
	j.handles.RLock()
	defer j.handles.RUnlock()
	j.mu.Lock()
	ok, fd := j.o.InPlace && at.segment == j.segment && at.end() <= j.settled, j.fd
	j.mu.Unlock()
	from := j.synced.Load()
	if !ok || from > at.end() {
		return ok
	}
	const throughToDisk = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return unix.SyncFileRange(fd, from, at.end()-from, throughToDisk) == nil
}

// ConfirmFlush tells the journal that the disk was flushed after WriteOut(at).
func (j *Journal) ConfirmFlush(at Span) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if at.segment == j.segment && at.end() > j.synced.Load() {
		j.synced.Store(at.end())
	}
}

// Sync makes the log durable up to the end of at. One sync serves all callers that
// wait for it.
func (j *Journal) Sync(at Span) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	size, fileEnd, segment := j.size, j.fileEnd, j.segment
	j.mu.Unlock()
	if at.segment != segment {
		return j.syncBelow(at.segment)
	}
	if at.end() <= j.synced.Load() {
		return nil
	}
	if err := unix.Fdatasync(j.fd); err != nil {
		return err
	}
	j.ConfirmFlush(Span{segment, 0, size})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settled = max(j.settled, min(fileEnd, j.fileEnd))
	return nil
}

// syncBelow makes the log of a frozen segment durable, for a copy that began before Freeze. Merge
// has made one durable that is not there any more. The caller holds syncing.
func (j *Journal) syncBelow(id int) error {
	j.mu.Lock()
	below := j.below
	j.mu.Unlock()
	for _, s := range below {
		if s.id != id {
			continue
		}
		fd, err := openFile(s.home, logName, unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Fdatasync(fd)
	}
	return nil
}

// SyncAll makes all that was appended so far durable.
func (j *Journal) SyncAll() error {
	j.mu.Lock()
	at := Span{segment: j.segment, len: j.size}
	j.mu.Unlock()
	return j.Sync(at)
}

// Pending returns how many bytes at the end of the log are not known to be durable.
func (j *Journal) Pending() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size - j.synced.Load()
}
