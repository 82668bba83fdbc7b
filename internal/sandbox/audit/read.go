package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Read calls do for each present line of the log at path, in order. A line that is not a
// record is passed as a Malformed. Errors: NotFound, Denied, Invalid if path is not a
// regular file, and the error of do, which ends Read.
func Read(path string, do func(Record) error) error {
	f, size, err := openStable(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return ReadFrom(io.NewSectionReader(f, 0, size), do)
}

// ReadRest is Read for what the log has from an offset on, at which a record begins. Its Lines
// count from there. It passes no last line without a newline, which is not a record yet. Errors:
// those of Read; Precondition if the log ends before the offset.
func ReadRest(path string, offset int64, do func(Record) error) error {
	f, size, err := openStable(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if offset > size {
		return errdefs.New(errdefs.Precondition, "audit log %s: it ends at byte %d, before %d", filepath.Base(path), size, offset)
	}
	s := newScanner(io.NewSectionReader(f, offset, size-offset))
	s.offset = offset
	for {
		record, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failed("read", path, err)
		}
		if err := do(record); err != nil {
			return err
		}
	}
}

// openStable opens the log at path, with its stable size.
func openStable(path string) (*os.File, int64, error) {
	f, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return nil, 0, failed("read", path, err)
	}
	size, err := stableSize(f)
	if err != nil {
		f.Close()
		return nil, 0, failed("read", path, err)
	}
	return f, size, nil
}

// stableSize returns the file's size with the lock held, so that it does not include a
// partly written record.
func stableSize(f *os.File) (int64, error) {
	if err := flock(f, unix.LOCK_SH); err != nil {
		return 0, err
	}
	defer func() { _ = flock(f, unix.LOCK_UN) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ReadFrom is Read for a log that is not a file.
func ReadFrom(r io.Reader, do func(Record) error) error {
	s := newScanner(r)
	for {
		record, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errdefs.New(errdefs.Internal, "read audit log: %w", err)
		}
		if err := do(record); err != nil {
			return err
		}
	}
	if record, torn := s.rest(); torn {
		return do(record)
	}
	return nil
}

// scanner splits its input into lines. It keeps an incomplete line until the newline comes,
// so that it can follow a growing file.
type scanner struct {
	in     *bufio.Reader
	line   []byte // up to maxLine of the current line
	size   int64  // of the current line so far
	offset int64  // of the current line in the file
	number int
}

func newScanner(r io.Reader) *scanner {
	return &scanner{in: bufio.NewReaderSize(r, 64<<10), number: 1}
}

// next returns the next complete line. After io.EOF it may be called again when the reader
// has more data.
func (s *scanner) next() (Record, error) {
	for {
		part, err := s.in.ReadSlice('\n')
		whole := bytes.HasSuffix(part, []byte{'\n'})
		if whole {
			part = part[:len(part)-1]
		}
		s.size += int64(len(part))
		s.line = append(s.line, part[:min(len(part), maxLine-len(s.line))]...)
		if whole {
			return s.record(1), nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return Record{}, err
		}
	}
}

// rest returns the last line if it has no newline. It may be a complete record otherwise.
func (s *scanner) rest() (Record, bool) {
	if s.size == 0 {
		return Record{}, false
	}
	return s.record(0), true
}

// record returns the current line as a Record and starts the next line, which begins after
// terminator bytes.
func (s *scanner) record(terminator int64) Record {
	r, err := parse(s.line)
	if s.size > int64(len(s.line)) {
		err = errdefs.New(errdefs.Invalid, "longer than any record")
	}
	r.Raw, r.Offset, r.Line = s.line, s.offset, s.number
	if err != nil {
		r = malformed(r, Malformed{Bytes: s.size, Reason: err.Error()})
	}
	s.offset += s.size + terminator
	s.number++
	s.size, s.line = 0, s.line[:0]
	return r
}

// malformed returns a record with the position of r and none of its fields.
func malformed(r Record, m Malformed) Record {
	return Record{Event: m, Raw: r.Raw, Offset: r.Offset, Line: r.Line}
}

// followPause is how often Follow looks for more records.
const followPause = 100 * time.Millisecond

// Follow is Read, and continues with appended records until ctx ends (nil), the sandbox is
// destroyed (nil) or do returns an error. Errors: as Read, and Precondition if the log got
// shorter or was removed.
func Follow(ctx context.Context, path string, do func(Record) error) error {
	f, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return failed("follow", path, err)
	}
	defer f.Close()
	grown := &growing{file: f}
	s := newScanner(grown)
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	for {
		if err := grown.look(); err != nil {
			return failed("follow", path, err)
		}
		if grown.removed || grown.limit < grown.offset {
			return errdefs.New(errdefs.Precondition, "follow audit log: it was shortened or removed")
		}
		destroyed, err := drain(ctx, s, do)
		if err != nil || destroyed || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// drain passes the present records to do. destroyed reports whether the last one is a
// SandboxDestroyed.
func drain(ctx context.Context, s *scanner, do func(Record) error) (destroyed bool, err error) {
	for ctx.Err() == nil {
		record, err := s.next()
		if errors.Is(err, io.EOF) {
			return destroyed, nil
		}
		if err != nil {
			return false, errdefs.New(errdefs.Internal, "follow audit log: %w", err)
		}
		if err := do(record); err != nil {
			return false, err
		}
		_, destroyed = record.Event.(SandboxDestroyed)
	}
	return destroyed, nil
}

// growing reads a file up to the size at the last call of look.
type growing struct {
	file    *os.File
	offset  int64
	limit   int64
	removed bool
}

func (g *growing) look() error {
	size, err := stableSize(g.file)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(g.file.Fd()), &st); err != nil {
		return err
	}
	g.limit, g.removed = size, st.Nlink == 0
	return nil
}

func (g *growing) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), max(0, g.limit-g.offset))]
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := g.file.ReadAt(p, g.offset)
	g.offset += int64(n)
	return n, err
}
