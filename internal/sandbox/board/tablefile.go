package board

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// locksFile has the table of the locks: each line is one version of it, and the last whole line is
// the present one.
const locksFile = "locks.jsonl"

const (
	tableVersion = 2
	// maxTableBytes bounds a line, and what is read of the file.
	maxTableBytes = 64 << 20
	// keptTableBytes is how large the file may become before it is replaced by one with the present
	// version only. A version that is larger replaces it always.
	keptTableBytes = 64 << 10
	// tailBytes is how much of the end of the file is read at first.
	tailBytes = 4 << 10
)

// read returns the table, also while others change it.
func (b *Board) read() (Table, error) {
	f, err := b.openTable()
	if err == nil {
		f.close()
	}
	return f.table, err
}

// tableFile is the file of the table while the board is locked.
type tableFile struct {
	board *Board
	table Table
	fd    int   // -1 if the file does not exist
	size  int64 // of the file
	whole int64 // without the incomplete line that a killed process left
}

// openTable reads the table. The caller closes the file, unless an error comes back.
func (b *Board) openTable() (f tableFile, err error) {
	f = tableFile{board: b, table: Table{Version: tableVersion}, fd: -1}
	f.fd, err = unix.Open(filepath.Join(b.dir, locksFile), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f.fd = -1
		return f, nil
	}
	if err == nil {
		err = f.readLast()
		for try := 1; errors.Is(err, io.ErrUnexpectedEOF) && try < maxTries; try++ {
			err = f.readLast() // an incomplete line was cut off, while we have no lock
		}
		if err != nil {
			f.close()
		}
	}
	if errdefs.Is(err, errdefs.Precondition) {
		return f, err
	}
	if err != nil {
		return f, errdefs.New(errdefs.Internal, "locks: %s is damaged: stop the sandboxes of the source and remove it: %w", record.HostPath(filepath.Join(b.dir, locksFile)), err)
	}
	return f, nil
}

func (f *tableFile) close() {
	if f.fd >= 0 {
		unix.Close(f.fd)
	}
}

// readLast reads the present version.
func (f *tableFile) readLast() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxTableBytes {
		return errors.New("not a file of a table")
	}
	if f.size = st.Size; f.size == 0 {
		return nil // what a crash of the host leaves of a new file: no holder lives
	}
	line, err := f.lastLine(min(st.Size, tailBytes))
	if err != nil {
		return err
	}
	f.table = Table{}
	if err := json.Unmarshal(line, &f.table); err != nil {
		return err
	}
	if f.table.Version != tableVersion {
		return errdefs.New(errdefs.Precondition, "locks: another version of agentfense has written them: stop its sandboxes first")
	}
	return nil
}

// lastLine returns the last whole line, of which it looks for the beginning in the last n bytes
// and, if it is not there, in the whole file.
func (f *tableFile) lastLine(n int64) ([]byte, error) {
	text := make([]byte, n)
	from := f.size - n
	if err := f.readAt(text, from); err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(text, '\n')
	begin := bytes.LastIndexByte(text[:max(end, 0)], '\n') + 1
	switch {
	case from > 0 && (end < 0 || begin == 0):
		return f.lastLine(f.size)
	case end < 0:
		return nil, errors.New("no line is whole")
	}
	f.whole = from + int64(end) + 1
	return text[begin:end], nil
}

// readAt fills to. Errors: io.ErrUnexpectedEOF if the file has become shorter.
func (f *tableFile) readAt(to []byte, offset int64) error {
	for len(to) > 0 {
		n, err := unix.Pread(f.fd, to, offset)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		to, offset = to[n:], offset+int64(n)
	}
	return nil
}

// store makes t the present version. The board is locked.
func (f *tableFile) store(t *Table) error {
	line, err := json.Marshal(t)
	if err != nil {
		return errdefs.New(errdefs.Internal, "locks: %w", err)
	}
	line = append(line, '\n')
	if len(line) > maxTableBytes {
		return errdefs.New(errdefs.Exhausted, "locks: the table has %d bytes, and may have %d", len(line), maxTableBytes)
	}
	if f.whole == 0 || f.whole+int64(len(line)) > keptTableBytes {
		return f.board.replace(locksFile, line)
	}
	if f.whole < f.size {
		err = unix.Ftruncate(f.fd, f.whole)
	}
	if err == nil {
		err = f.append(line)
	}
	if err != nil {
		return record.HostError("board", errors.Join(err, unix.Ftruncate(f.fd, f.whole)))
	}
	return nil
}

func (f *tableFile) append(line []byte) error {
	for at := f.whole; len(line) > 0; {
		n, err := unix.Pwrite(f.fd, line, at)
		if err != nil {
			return &os.PathError{Op: "write", Path: locksFile, Err: err}
		}
		line, at = line[n:], at+int64(n)
	}
	return nil
}
