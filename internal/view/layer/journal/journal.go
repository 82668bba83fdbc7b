// Package journal records what paths were in the source before a sandbox first
// changed them.
//
// It owns base.log, which it only appends to, and base/, the contents that are too long for
// the log. Those of frozen layers below are segments that come before its own and that it only
// reads. A Journal promises that a record is durable after Sync and that a record which a
// crash tore, or that fails its checksum, counts as absent: applying that path is then a
// conflict.
//
// It knows neither the layers nor the source. Its owner decides what to record and in which
// order, opens the files, and bounds the contents with a Quota.
//
// A Journal is safe for concurrent use. Lock order: Journal.syncing, Journal.handles,
// Journal.mu, then the locks of Quota. It starts no goroutine.
package journal

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Journal is an open journal. The zero value is not usable.
type Journal struct {
	o   Options
	dir int // base/

	syncing sync.Mutex   // taken before handles
	synced  atomic.Int64 // how much of the log is durable

	handles sync.RWMutex // shared by who uses a handle, exclusive for replacing them; before mu

	mu      sync.Mutex
	segment int       // counts Freeze and Merge
	below   []segment // of frozen layers, the lowest first
	fd      int
	size    int64                  // where the next record goes
	fileEnd int64                  // the length of the file: zeros from size on
	settled int64                  // up to where the file's length and blocks are durable
	kept    map[sha256Sum]struct{} // the contents in the log

	deferring bool   // between Defer and FlushDeferred
	deferred  []byte // records that wait for the next write, or for FlushDeferred

	inlineBytes int64 // the size of the contents in the log when it was opened
}

// segment is the log and the contents of a frozen layer.
type segment struct {
	id   int // Journal.segment when it was written, or a negative number
	home int // the directory; its owner closes it
}

const (
	logName   = "base.log"
	logHeader = "agentfense-base 2\n"
)

// Bounds of the zeros after the log, in bytes. Between them there are as many
// zeros as the log is long.
const (
	preallocMin = 16 << 10
	preallocMax = 256 << 10
)

// Options says what Open opens. Only InPlace and ReadOnly are optional.
type Options struct {
	// Home is a handle on the directory that holds the log and base/. The owner
	// closes it after Close.
	Home int
	// Below are handles on the directories of the frozen layers, the lowest first. The owner
	// closes them after Close, and after Merge and Clear.
	Below []int
	// Work is a handle on a directory of the same file system for unfinished
	// files. The owner closes it after Close, and empties it after a crash.
	Work int
	// Temp returns a name that is unused in Work.
	Temp func() string
	// Quota counts the contents that are kept.
	Quota Quota
	// InPlace says that the file system overwrites the blocks of a file where they
	// are. WriteOut relies on it.
	InPlace bool
	// ReadOnly opens the journal while another process may write to it. Only Bases and
	// Content work.
	ReadOnly bool
}

// Quota bounds the contents that a journal keeps, in bytes. The journal calls its
// methods with its own lock held.
type Quota interface {
	// Reserve reserves n bytes until Release. Errors: EDQUOT.
	Reserve(n int64) error
	Release(n int64)
	// AddContent adds n bytes, which may be negative, to the size of the contents.
	AddContent(n int64)
	// ClearContents sets the size of the contents to zero.
	ClearContents()
}

// Recorded is the combined result of the records of a log.
type Recorded struct {
	Bases   map[vpath.Path]Base
	Aliases map[uint64]Alias // by the inode number of the backing file
}

// Open reads the log, or makes it, and compacts it if most of it is superseded.
// Errors: Unsupported for a log of another version; those of the file system.
func Open(o Options) (*Journal, Recorded, error) {
	j := &Journal{o: o, fd: -1, dir: -1}
	for i, home := range o.Below {
		j.below = append(j.below, segment{id: i - len(o.Below), home: home})
	}
	t, err := j.open()
	if err != nil {
		j.closeHandles()
		return nil, Recorded{}, err
	}
	return j, Recorded{t.bases, t.aliases}, nil
}

func (j *Journal) open() (*table, error) {
	var err error
	if !j.o.ReadOnly {
		if j.fd, j.dir, err = openSegment(j.o.Home); err != nil {
			return nil, err
		}
	}
	t, err := j.read()
	if err != nil || j.o.ReadOnly {
		return t, err
	}
	return t, j.resume(t)
}

// openSegment opens the log and the contents in home, which it makes if they are absent.
func openSegment(home int) (log, contents int, err error) {
	if err := safefs.MakePrivateDir(home, contentsName); err != nil {
		return -1, -1, err
	}
	if contents, err = openDir(home, contentsName); err != nil {
		return -1, -1, err
	}
	if log, err = openFile(home, logName, unix.O_CREAT|unix.O_RDWR, 0o600); err != nil {
		unix.Close(contents)
		return -1, -1, err
	}
	return log, contents, nil
}

// resume makes the log that t was read from ready for appending.
func (j *Journal) resume(t *table) error {
	if t.isWasteful() {
		err := j.compact(t)
		if err != nil && err != unix.ENOSPC && err != unix.EDQUOT {
			return err
		} // else a later Open compacts it
	}
	var st unix.Stat_t
	if err := unix.Fstat(j.fd, &st); err != nil {
		return err
	}
	j.size, j.fileEnd = t.end, st.Size
	j.keep(t)
	switch {
	case j.size == 0:
		return j.write([]byte(logHeader))
	case !t.endsLine:
		return j.write([]byte("\n")) // closes the torn line
	}
	return nil
}

// keep notes which contents the log has. A content of a segment below is kept again if it is
// needed again, so that the owner may forget either.
func (j *Journal) keep(t *table) {
	j.kept, j.inlineBytes = map[sha256Sum]struct{}{}, 0
	for sum, at := range t.contents {
		j.inlineBytes += at.len
		if at.segment == j.segment {
			j.kept[sum] = struct{}{}
		}
	}
}

// lockAll takes all locks, in their order, and returns what releases them.
func (j *Journal) lockAll() (unlock func()) {
	j.syncing.Lock()
	j.handles.Lock()
	j.mu.Lock()
	return func() {
		j.mu.Unlock()
		j.handles.Unlock()
		j.syncing.Unlock()
	}
}

// Clear removes every record and every content, and forgets the segments below.
func (j *Journal) Clear() error {
	defer j.lockAll()()
	if err := unix.Ftruncate(j.fd, int64(len(logHeader))); err != nil {
		return err
	}
	j.segment++
	j.below = nil
	j.synced.Store(0)
	j.size = int64(len(logHeader))
	j.fileEnd, j.settled = j.size, 0
	clear(j.kept)
	j.o.Quota.ClearContents()
	return j.removeContents(nil)
}

// Close makes the log durable and closes it. Later calls fail with EBADF.
func (j *Journal) Close() error {
	var err error
	if j.fd >= 0 {
		_ = unix.Ftruncate(j.fd, j.size) // cuts the zeros; they do no harm
		err = unix.Fdatasync(j.fd)
	}
	j.closeHandles()
	return err
}

func (j *Journal) closeHandles() {
	for _, fd := range []*int{&j.fd, &j.dir} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	j.o.Home, j.o.Work = -1, -1
}

// openFile opens path beneath dir, following no link.
func openFile(dir int, path string, flags int, mode uint32) (int, error) {
	return safefs.Open(dir, path, flags|unix.O_NOFOLLOW, mode)
}

func openDir(dir int, name string) (int, error) {
	return openFile(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
}
