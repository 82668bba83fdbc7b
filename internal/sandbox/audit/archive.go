package audit

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Archived is the first record of a log after its earlier records were moved to another
// file. Its prev is the hash of the last moved record.
type Archived struct {
	Records uint64 `json:"records"` // the number of the last moved record
}

// Kind returns KindArchived.
func (Archived) Kind() Kind { return KindArchived }

// Archive moves the log's records into the empty file out, which it syncs, and begins the
// log again with an Archived record. Numbers and hashes continue. After a crash, both files
// may have the records, or the log may be empty; then its next record is a gap record.
// Errors: as Append; and those of writing to out, after which the log is unchanged.
func (l *Log) Archive(out *os.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return errdefs.New(errdefs.Precondition, "archive audit log: closed")
	}
	name := l.file.Name()
	if err := flock(l.file, unix.LOCK_EX); err != nil {
		return failed("lock", name, err)
	}
	defer func() { _ = flock(l.file, unix.LOCK_UN) }()
	b, err := l.beginLocked()
	if err != nil {
		return err
	}
	if _, err := l.writeLocked(b); err != nil {
		return err
	}
	if _, err := io.Copy(out, io.NewSectionReader(l.file, 0, l.end)); err != nil {
		return failed("archive", name, err)
	}
	if err := out.Sync(); err != nil {
		return failed("archive", name, err)
	}
	if err := l.file.Truncate(0); err != nil {
		return failed("archive", name, err)
	}
	l.end, l.dirty = 0, true
	first := &batch{log: l, last: l.last}
	e, err := encode(Archived{Records: l.last.Seq}, l.options.Now())
	if err != nil {
		return err
	}
	if err := first.add(e); err != nil {
		return err
	}
	_, err = l.writeLocked(first)
	return err
}

// IsOver reports whether the last record of the log at path is a SandboxDestroyed. Errors:
// NotFound, Denied, Invalid as from Read.
func IsOver(path string) (bool, error) {
	f, size, err := openStable(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r, _, err := findLast(f, size)
	if err != nil {
		return false, err
	}
	_, over := r.Event.(SandboxDestroyed)
	return over, nil
}

// OwnerOf returns the user_id of the first record of the log at path. Errors: as from Read.
func OwnerOf(path string) (string, error) {
	f, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return "", failed("read", path, err)
	}
	defer f.Close()
	r, err := newScanner(f).next()
	if err != nil && !errors.Is(err, io.EOF) {
		return "", failed("read", path, err)
	}
	return string(r.UserID), nil
}
