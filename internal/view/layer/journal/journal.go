// Package journal records what paths were in the source before a sandbox first
// changed them.
//
// It owns base.log, which it only appends to, and base/, the contents that are too long for
// the log. A Journal promises that a record is durable after Sync and that a record which a
// crash tore, or that fails its checksum, counts as absent: applying that path is then a
// conflict.
//
// It knows neither the layers nor the source. Its owner decides what to record and in which
// order, opens the files, and bounds the contents with a Quota.
//
// A Journal is safe for concurrent use. Lock order: Journal.syncing, Journal.mu,
// then the locks of Quota. It starts no goroutine.
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

	syncing sync.Mutex   // taken before mu
	synced  atomic.Int64 // how much of the log is durable; only Clear lowers it

	mu      sync.Mutex
	fd      int
	size    int64                  // where the next record goes
	fileEnd int64                  // the length of the file: zeros from size on
	settled int64                  // up to where the file's length and blocks are durable
	kept    map[sha256Sum]struct{} // the contents in the log

	deferring bool   // between Defer and FlushDeferred
	deferred  []byte // records that wait for the next write, or for FlushDeferred

	inlineBytes int64 // the size of the contents in the log when it was opened
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
		if err := safefs.MakePrivateDir(j.o.Home, contentsName); err != nil {
			return nil, err
		}
		if j.dir, err = openDir(j.o.Home, contentsName); err != nil {
			return nil, err
		}
		if j.fd, err = openFile(j.o.Home, logName, unix.O_CREAT|unix.O_RDWR, 0o600); err != nil {
			return nil, err
		}
	}
	t, err := j.read()
	if err != nil || j.o.ReadOnly {
		return t, err
	}
	return t, j.resume(t)
}

// resume makes the log that t was read from ready for appending.
func (j *Journal) resume(t *table) error {
	used := t.usedContents()
	if t.isWasteful(used) {
		err := j.compact(t, used)
		if err != unix.ENOSPC && err != unix.EDQUOT {
			return err
		} // else a later Open compacts it
	}
	var st unix.Stat_t
	if err := unix.Fstat(j.fd, &st); err != nil {
		return err
	}
	j.size, j.fileEnd, j.inlineBytes = t.end, st.Size, sumSpans(t.contents)
	j.kept = make(map[sha256Sum]struct{}, len(t.contents))
	for sum := range t.contents {
		j.kept[sum] = struct{}{}
	}
	switch {
	case j.size == 0:
		return j.write([]byte(logHeader))
	case !t.endsLine:
		return j.write([]byte("\n")) // closes the torn line
	}
	return nil
}

// Clear removes every record and every content.
func (j *Journal) Clear() error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := unix.Ftruncate(j.fd, int64(len(logHeader))); err != nil {
		return err
	}
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
