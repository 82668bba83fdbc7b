package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Options are the options of a Log.
type Options struct {
	Sandbox string // name, written into each record
	ID      string // written into each record
	// CodebaseID and UserID are the codebase and the owner of a server's sandbox. They are
	// written into each record unless empty.
	CodebaseID, UserID string
	Now                func() time.Time // time.Now if nil; called by several goroutines
	Budget             Budget
}

// Log appends records to one file.
type Log struct {
	options Options

	mu    sync.Mutex
	file  *os.File
	head  *os.File
	last  Head
	end   int64 // size of the file after last; -1: unknown
	lost  uint64
	cause string // why events were lost
	dirty bool   // a record is not durable yet

	allowance allowance
}

// headSuffix is the suffix of the file with a log's Head.
const headSuffix = ".head"

// headSize is the file's fixed size, so that one write replaces it.
const headSize = 86

// Open opens the log at path, or makes it with mode 0600 if it is absent. Its directory
// must exist. Errors: NotFound, Denied, Invalid if path is not a regular file.
func Open(path string, o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	_, err := os.Lstat(path)
	fresh := errors.Is(err, os.ErrNotExist)
	file, err := openFile(path, unix.O_RDWR|unix.O_APPEND|unix.O_CREAT)
	if err != nil {
		return nil, failed("open", path, err)
	}
	head, err := openFile(path+headSuffix, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		file.Close()
		return nil, failed("open", path+headSuffix, err)
	}
	l := &Log{options: o, file: file, head: head, end: -1}
	if fresh {
		// The name of a durable log must be durable, too.
		if dir, err := os.Open(filepath.Dir(path)); err == nil {
			_ = dir.Sync()
			dir.Close()
		}
	}
	return l, nil
}

// openFile opens a regular file. It follows no link and does not block on a FIFO.
func openFile(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, unix.EINVAL
	}
	return os.NewFile(uintptr(fd), path), nil
}

// failed names the log by the base name of its file, without the host's directory.
func failed(operation, path string, err error) error {
	kind := errdefs.Internal
	switch {
	case errors.Is(err, os.ErrNotExist):
		kind = errdefs.NotFound
	case errors.Is(err, os.ErrPermission):
		kind = errdefs.Denied
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ELOOP):
		kind = errdefs.Invalid
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		kind = errdefs.Exhausted
	}
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return errdefs.New(kind, "%s audit log %s: %w", operation, filepath.Base(path), err)
}

// Append writes events in order. It returns when the kernel has them, or when they are
// durable if one is of a durable kind (docs/audit.md). Events that cannot be written are
// lost, and the next record says how many. Errors: Exhausted if the disk is full;
// Precondition if the file was removed; Invalid for an event that is not one of this
// package's.
func (l *Log) Append(events ...Event) error {
	list := make([]encoded, 0, len(events))
	for _, ev := range events {
		e, err := encode(ev, l.options.Now())
		if err != nil {
			return err
		}
		list = append(list, e)
	}
	done, err := l.append(list)
	if lost := len(list) - done; lost > 0 {
		l.noteLost(uint64(lost), err)
	}
	return err
}

// noteLost makes Append write a gap record before the next record.
func (l *Log) noteLost(n uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += n
	if err != nil {
		l.cause = err.Error()
	}
}

// append writes events and returns how many of them were written.
func (l *Log) append(events []encoded) (done int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return 0, errdefs.New(errdefs.Precondition, "append to audit log: closed")
	}
	name := l.file.Name()
	if err := flock(l.file, unix.LOCK_EX); err != nil {
		return 0, failed("lock", name, err)
	}
	defer func() { _ = flock(l.file, unix.LOCK_UN) }()
	b, err := l.beginLocked()
	if err != nil {
		return 0, err
	}
	for _, e := range events {
		if err := l.addOrCountLocked(b, e); err != nil {
			return 0, err
		}
	}
	return l.writeLocked(b)
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// batch has the data of one write at the end of the file.
type batch struct {
	log     *Log
	data    []byte
	last    Head
	ends    []int // where in data each event ends
	gaps    int   // how many of them, at the beginning, are gap records
	durable bool

	summaries []int // which of them are EventsOmitted records, from 1
	omitted   []omission
}

func (b *batch) add(e encoded) error {
	line, head, err := e.line(&b.log.options, b.last)
	if err != nil {
		return err
	}
	b.data = append(b.data, line...)
	b.last = head
	b.ends = append(b.ends, len(b.data))
	b.durable = b.durable || durable[e.kind]
	return nil
}

func (b *batch) addGap(g Gap) error {
	e, err := encode(g, b.log.options.Now())
	if err != nil {
		return err
	}
	b.gaps++
	return b.add(e)
}

// done returns how many of the caller's events are among the first written events of the
// batch.
func (b *batch) done(written int) int {
	n := max(0, written-b.gaps)
	for _, place := range b.summaries {
		if place <= written {
			n--
		}
	}
	return max(0, n)
}

// beginLocked finds the log's end and starts a batch with the necessary gap records. The
// caller holds l.mu and the file's lock.
func (l *Log) beginLocked() (*batch, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		return nil, failed("stat", l.file.Name(), err)
	}
	if st.Nlink == 0 {
		return nil, errdefs.New(errdefs.Precondition, "append to audit log %s: it was removed", filepath.Base(l.file.Name()))
	}
	b := &batch{log: l}
	if st.Size != l.end {
		gaps, err := l.resumeLocked(b, st.Size)
		if err != nil {
			return nil, err
		}
		for _, g := range gaps {
			if err := b.addGap(g); err != nil {
				return nil, err
			}
		}
	} else {
		b.last = l.last
	}
	if l.lost > 0 {
		if err := b.addGap(Gap{Reason: GapLost, Lost: l.lost, Error: l.cause}); err != nil {
			return nil, err
		}
	}
	l.end = st.Size
	if l.summaryDueLocked() {
		return b, l.addSummaryLocked(b)
	}
	return b, nil
}

// writeLocked writes b to the end of the file, and then updates the head.
func (l *Log) writeLocked(b *batch) (done int, err error) {
	n := 0
	if len(b.data) > 0 {
		n, err = l.file.Write(b.data)
	}
	written := 0
	for written < len(b.ends) && b.ends[written] <= n {
		written++
	}
	l.dirty = l.dirty || n > 0
	l.settleLocked(b, written)
	if err != nil {
		l.end = -1
		return b.done(written), failed("append to", l.file.Name(), err)
	}
	l.last, l.end = b.last, l.end+int64(n)
	l.lost, l.cause = 0, ""
	if n == 0 {
		return b.done(written), nil
	}
	if _, err := l.head.WriteAt(fmt.Appendf(nil, "%-*s\n", headSize-1, l.last), 0); err != nil {
		return b.done(written), failed("write", l.head.Name(), err)
	}
	if b.durable {
		err = l.syncLocked()
	}
	return b.done(written), err
}

func (l *Log) syncLocked() error {
	if !l.dirty {
		return nil
	}
	if err := unix.Fdatasync(int(l.file.Fd())); err != nil {
		return failed("sync", l.file.Name(), err)
	}
	l.dirty = false
	return nil
}

func (l *Log) unsynced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dirty || l.allowance.omitted.counts != nil
}

// Sync makes all appended records durable.
func (l *Log) Sync() error {
	l.mu.Lock()
	due := l.file != nil && l.summaryDueLocked()
	l.mu.Unlock()
	if due {
		if _, err := l.append(nil); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.syncLocked()
}

// Close writes the record of omitted events, syncs and closes the log. Closing again does
// nothing.
func (l *Log) Close() error {
	l.mu.Lock()
	l.allowance.nextSummary = time.Time{}
	l.mu.Unlock()
	err := l.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err = errors.Join(err, l.file.Close(), l.head.Close())
	l.file, l.head = nil, nil
	return err
}

// Remove deletes the log at path. It succeeds if there is none.
func Remove(path string) error {
	for _, name := range []string{path + headSuffix, path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return failed("remove", name, err)
		}
	}
	return nil
}

// readHead reads the head beside the log at path; ok is false if there is none.
func readHead(f io.ReaderAt) (h Head, ok bool) {
	var b [headSize]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Head{}, false
	}
	for n > 0 && (b[n-1] == ' ' || b[n-1] == '\n') {
		n--
	}
	h, err = ParseHead(string(b[:n]))
	return h, err == nil
}
