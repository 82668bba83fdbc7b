package layer

import (
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// journal is base.log, which is only ever appended to, and base/, the contents
// too long for it. A line that a crash tore, or that fails its checksum, counts
// as absent: what it recorded then has no base and applying it is a conflict.
type journal struct {
	s   *Stack
	dir int // base/

	syncing sync.Mutex   // taken before mu
	synced  atomic.Int64 // how much of the log is durable; it grows alone, but for clear

	mu      sync.Mutex
	fd      int
	inPlace bool                   // the file system writes over blocks where they are
	size    int64                  // where the next record goes
	room    int64                  // where the file ends: zeros since size
	settled int64                  // up to where the file's length and blocks are durable
	kept    map[sha256Sum]struct{} // the contents in the log
	held    bool                   // between hold and release
	late    []byte                 // records that wait for the next that is written, or for release

	logged int64 // bytes of the contents in the log when it was opened
}

const (
	journalName   = "base.log"
	journalHeader = "agentfense-base 2\n"
)

// How many zeros are kept behind the log: as much as it is long, within these.
const (
	roomMin = 16 << 10
	roomMax = 256 << 10
)

// open reads the log for the numbers shown, compacts it if most of it is
// superseded, and leaves it ready to append.
func (j *journal) open(s *Stack) error {
	j.s, j.fd, j.dir = s, -1, -1
	var err error
	if !s.o.ReadOnly {
		if j.dir, err = s.privateDir("base"); err != nil {
			return err
		}
		if j.fd, err = openat2(s.home, journalName, unix.O_CREAT|unix.O_RDWR, 0o600); err != nil {
			return err
		}
	}
	t, err := j.read()
	if err != nil {
		return err
	}
	s.inodes.reset(t.aliases)
	_, s.rootTouched = t.bases[vpath.Root]
	if s.o.ReadOnly {
		return nil
	}
	return j.resume(t)
}

// resume goes on with the log that t was read from.
func (j *journal) resume(t *table) error {
	j.inPlace = writesInPlace(j.fd)
	used := t.usedContents()
	if t.isWasteful(used) {
		err := j.compact(t, used)
		if err != unix.ENOSPC && err != unix.EDQUOT {
			return err
		} // else another time
	}
	st, err := statFd(j.fd)
	if err != nil {
		return err
	}
	j.size, j.room, j.logged = t.end, st.size, sumSpans(t.contents)
	j.kept = make(map[sha256Sum]struct{}, len(t.contents))
	for sum := range t.contents {
		j.kept[sum] = struct{}{}
	}
	switch {
	case j.size == 0:
		return j.write([]byte(journalHeader))
	case !t.endsLine:
		return j.write([]byte("\n")) // closes the torn line
	}
	return nil
}

// recordRoom is what a content and the usual record with it take beside the text.
const recordRoom = 1 << 10

// span is a range of the log.
type span struct {
	off int64
	len int64
}

func (s span) end() int64 { return s.off + s.len }

// append adds records to the log, all or none, with the contents that they
// bring. They are durable after sync.
func (j *journal) append(records ...record) error {
	_, err := j.add(records...)
	return err
}

// hold lets what appendLate is given wait, until release writes it at once.
func (j *journal) hold() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = true
}

// appendLate is append for records that may come later than what they tell of,
// though not after a record that is appended later.
func (j *journal) appendLate(records ...record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range records {
		j.late = appendRecord(j.late, r)
	}
	if j.held && len(j.late) < lateBytes {
		return nil
	}
	return j.writeLate()
}

// lateBytes is how much waits at most.
const lateBytes = 1 << 20

func (j *journal) release() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = false
	return j.writeLate()
}

// writeLate writes what waits; where it cannot, that is lost. The caller holds mu.
func (j *journal) writeLate() error {
	b := j.late
	j.late = nil
	if len(b) == 0 {
		return nil
	}
	return j.write(b)
}

// add is append and says where the records are.
func (j *journal) add(records ...record) (span, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.writeLate(); err != nil {
		return span{}, err
	}
	var b []byte
	brought := map[sha256Sum]int64{} // contents and what the quota counts for them
	for i := range records {
		r := &records[i]
		if r.base.text != nil {
			sum := sha256Sum(r.base.SHA256)
			if _, ok := j.kept[sum]; ok {
				j.s.quota.addContent(-int64(len(r.base.text)))
			} else {
				brought[sum] = int64(len(r.base.text))
				content := contentRecord(&r.base)
				b = appendRecord(slices.Grow(b, len(content.text)+recordRoom), content)
			}
		}
		b = appendRecord(b, *r)
	}
	at := span{j.size, int64(len(b))}
	err := j.write(b)
	for sum, n := range brought {
		if err != nil {
			j.s.quota.addContent(-n)
			continue
		}
		j.kept[sum] = struct{}{}
	}
	return at, err
}

// write appends b. The caller holds mu.
func (j *journal) write(b []byte) error {
	if err := writeAll(j.fd, b, j.size); err != nil {
		_ = unix.Ftruncate(j.fd, j.size) // else the next line closes over it
		j.room, j.settled = j.size, min(j.settled, j.size)
		return err
	}
	j.size += int64(len(b))
	if j.size > j.room {
		j.makeRoom()
	}
	return nil
}

// makeRoom puts zeros behind the log: records that take their place change
// neither length nor blocks of the file, so that making them durable waits for
// their bytes alone. Without room it takes longer, that is all.
func (j *journal) makeRoom() {
	j.room = j.size
	n, err := unix.Pwrite(j.fd, make([]byte, min(max(j.size, roomMin), roomMax)), j.size)
	if err == nil {
		j.room += int64(n)
	}
}

// land writes all up to the end of the range to the disk and reports whether
// the next flush of the disk, which fdatasync(2) of any file of it brings, makes
// that durable, as confirm is then told. That holds where records take the place
// of zeros that are durable themselves and the file system writes over blocks
// where they are: sync_file_range(2) then leaves nothing out but the flush.
func (j *journal) land(at span) bool {
	j.mu.Lock()
	ok := j.inPlace && at.end() <= j.settled
	j.mu.Unlock()
	from := j.synced.Load()
	if !ok || from > at.end() {
		return ok
	}
	const throughToDisk = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return unix.SyncFileRange(j.fd, from, at.end()-from, throughToDisk) == nil
}

// confirm says that the disk was flushed after land.
func (j *journal) confirm(at span) {
	for {
		synced := j.synced.Load()
		if synced >= at.end() || j.synced.CompareAndSwap(synced, at.end()) {
			return
		}
	}
}

// sync makes the range durable. Those who wait meanwhile are served at once.
func (j *journal) sync(at span) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if at.end() <= j.synced.Load() {
		return nil
	}
	j.mu.Lock()
	size, room := j.size, j.room
	j.mu.Unlock()
	if err := unix.Fdatasync(j.fd); err != nil {
		return err
	}
	j.confirm(span{0, size})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settled = max(j.settled, min(room, j.room))
	return nil
}

// syncAll makes durable what was written so far.
func (j *journal) syncAll() error {
	j.mu.Lock()
	at := span{len: j.size}
	j.mu.Unlock()
	return j.sync(at)
}

// writesInPlace reports whether the file system of fd is known to write over a
// file's blocks where they are: ext4 (and ext2, ext3), which has no other way.
// Others share blocks or write elsewhere, if only now and then.
func writesInPlace(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.EXT4_SUPER_MAGIC
}

// clear forgets every record and every content.
func (j *journal) clear() error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := unix.Ftruncate(j.fd, int64(len(journalHeader))); err != nil {
		return err
	}
	j.synced.Store(0)
	j.size = int64(len(journalHeader))
	j.room, j.settled = j.size, 0
	clear(j.kept)
	j.s.quota.clearContents()
	return j.removeContents(nil)
}

func (j *journal) close() error {
	if j.dir >= 0 {
		unix.Close(j.dir)
	}
	if j.fd < 0 {
		return nil
	}
	_ = unix.Ftruncate(j.fd, j.size) // the room; it does no harm
	err := unix.Fdatasync(j.fd)
	unix.Close(j.fd)
	j.fd, j.dir = -1, -1
	return err
}

// crcTable is CRC-32C (Castagnoli), which processors compute themselves.
var crcTable = crc32.MakeTable(crc32.Castagnoli)
