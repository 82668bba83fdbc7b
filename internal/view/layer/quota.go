package layer

import (
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Usage is what a stack stores, and its quota. Without a quota the used counts are 0.
type Usage struct {
	Bytes  int64 // of allocated blocks
	Inodes int64
	Quota  Quota
}

// Statfs returns the use of the quota.
func (s *Stack) Statfs() Usage {
	q := &s.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	return Usage{Bytes: q.bytes + q.contents, Inodes: q.count, Quota: q.limit}
}

// Refusals counts what the quota has refused since Open: contents that did not fit, and entries.
type Refusals struct{ Bytes, Inodes int64 }

// Refused returns what the quota has refused, to all stacks that share it.
func (s *Stack) Refused() Refusals {
	q := &s.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// quota counts what is stored. Bytes are allocated bytes as the file system reports them,
// so a hole counts nothing. A write reserves its length before, and settles the difference
// afterwards.
type quota struct {
	*ledger
	root uint64 // the key in ledger.files of the delta's own directory
	own  int64  // what ledger.contents has of this stack; guarded by ledger.mu
}

// ledger counts what the stacks that share a quota use together.
type ledger struct {
	limit Quota

	mu       sync.Mutex
	files    map[uint64]int64 // allocated bytes by backing inode; nil without a quota
	bytes    int64            // sum of files
	contents int64            // allocated bytes of recorded contents
	reserved int64
	count    int64
	refused  Refusals
	sharers  uint64           // stacks that share the quota of another
	kept     map[string]tally // what only snapshots show, by the layer's path; part of bytes and count
}

// blockBytes is the unit of st_blocks. A write is rounded up to pageBytes.
const (
	blockBytes = 512
	pageBytes  = 4096
	// entryBytes is the most that a new entry takes: a block for a directory or a long
	// link, and one more for its parent directory.
	entryBytes = 2 * pageBytes
)

func (q *quota) limitsBytes() bool { return q.limit.Bytes > 0 }

// open counts the present files. Without a quota it does nothing.
func (q *quota) open(s *Stack) error {
	if of := s.o.QuotaOf; of != nil {
		q.ledger = of.quota.ledger
		q.mu.Lock()
		q.root = lastRootInode - q.sharers
		q.sharers++
		q.mu.Unlock()
	} else {
		q.limit = s.o.Quota
	}
	if q.limit == (Quota{}) {
		return nil
	}
	if q.files == nil {
		q.files = map[uint64]int64{}
	}
	for _, l := range s.layers[:s.bottom()] {
		if err := walkNames(l.root, q.found); err != nil {
			return err
		}
	}
	q.settleDir(vpath.Root, s.layers[top].root)
	contents, err := s.journal.ContentBytes()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.contents += contents
	q.own += contents
	return err
}

// found counts one file of a delta at Open. Whiteouts are not counted: there are never more
// of them than names in the source, and a removal must not fail for lack of quota.
func (q *quota) found(dir int, _ vpath.Path, c storedChild) error {
	if c.kind != nameenc.KindEntry {
		return nil
	}
	stored, _ := nameenc.Entry(c.name)
	st, err := statAt(dir, stored)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.files[st.ino]; ok {
		return nil
	}
	q.files[st.ino] = st.blocks * blockBytes
	q.bytes += st.blocks * blockBytes
	q.count++
	return nil
}

// addInodes takes n inodes. Errors: EDQUOT.
func (q *quota) addInodes(n int64) error {
	if q.files == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limit.Inodes > 0 && q.count+n > q.limit.Inodes && (!q.dropRemovedLocked() || q.count+n > q.limit.Inodes) {
		q.refused.Inodes++
		return unix.EDQUOT
	}
	q.count += n
	return nil
}

// dropInodes returns n inodes for which no file was made.
func (q *quota) dropInodes(n int64) {
	if q.files == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count -= n
}

// Reserve takes n bytes until Release. Errors: EDQUOT.
func (q *quota) Reserve(n int64) error {
	if !q.limitsBytes() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.exceedsLocked(n) && (!q.dropRemovedLocked() || q.exceedsLocked(n)) {
		q.refused.Bytes++
		return unix.EDQUOT
	}
	q.reserved += n
	return nil
}

func (q *quota) exceedsLocked(n int64) bool { return q.bytes+q.contents+q.reserved+n > q.limit.Bytes }

// Release gives back what Reserve took.
func (q *quota) Release(n int64) {
	if !q.limitsBytes() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved -= n
}

// add counts a file without regard to the limits: it takes the place of another that was counted.
func (q *quota) add(st *stat) {
	if q.files == nil {
		return
	}
	q.mu.Lock()
	q.count++
	q.mu.Unlock()
	q.settle(st)
}

// settle records the present allocation of a file for which addInodes took an inode.
func (q *quota) settle(st *stat) {
	if q.files == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := st.blocks * blockBytes
	q.bytes += now - q.files[st.ino]
	q.files[st.ino] = now
}

// lastRootInode and the numbers below it are keys in ledger.files for the allocation of the
// directories of deltas that share a quota, beyond its first block. For the stack whose quota it
// is, the key is 0. No file has these inode numbers.
const lastRootInode = math.MaxUint64

// settleDir records the allocation of the delta's directory p, open as fd, after a name was
// added.
func (q *quota) settleDir(p vpath.Path, fd int) {
	if !q.limitsBytes() {
		return
	}
	st, err := statFd(fd)
	if err != nil {
		return
	}
	if p.IsRoot() {
		st.ino, st.blocks = q.root, max(0, st.blocks-pageBytes/blockBytes)
	}
	q.settle(&st)
}

// AddContent counts a recorded content. Only Open and Reset release contents that are on
// disk.
func (q *quota) AddContent(n int64) {
	if !q.limitsBytes() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.contents += n
	q.own += n
}

// ClearContents sets the count of the stack's recorded contents to zero.
func (q *quota) ClearContents() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.contents -= q.own
	q.own = 0
}

// freed removes a file from the counts. It reports whether the file was counted; whiteouts
// are not.
func (q *quota) freed(ino uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes, ok := q.files[ino]
	if !ok {
		return false
	}
	q.count--
	q.bytes -= bytes
	delete(q.files, ino)
	return true
}

// during runs do, which stores at most length bytes in fd from offset off. Errors: EDQUOT,
// those of do.
func (q *quota) during(fd int, off, length int64, do func() error) error {
	if !q.limitsBytes() {
		return do()
	}
	need := length + 2*pageBytes
	if length == 0 {
		need = 0
	}
	if err := q.Reserve(need); err != nil {
		if !isAllocated(fd, off, length) {
			return err
		}
		q.unrefuse()
		need = 0
	}
	defer q.Release(need)
	err := do()
	if st, e := statFd(fd); e == nil {
		q.settle(&st)
	}
	return err
}

// unrefuse takes back a refusal of Reserve, because nothing had to be reserved.
func (q *quota) unrefuse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused.Bytes--
}

// isAllocated reports whether writing the range needs no new block, judged by the size and
// the number of blocks.
func isAllocated(fd int, off, length int64) bool {
	st, err := statFd(fd)
	if err != nil || off+length < off || off+length > st.size {
		return false
	}
	return st.blocks*blockBytes >= st.size
}
