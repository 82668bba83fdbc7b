package outlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// followPause is how often Read looks for more records.
var followPause = 100 * time.Millisecond // a variable for tests

// maxLineBytes bounds a record: a writer takes a piece of a stream at a time, and
// the arguments of a command.
const maxLineBytes = 8 << 20

// Read calls do with the records of the log in dir, the oldest first. It succeeds without a
// log. With alive it continues until all commands are over, or alive returns false because
// the writer has ended. Errors: those of do; Canceled.
func Read(ctx context.Context, dir string, alive func() bool, do func(Record) error) error {
	r := &reader{dir: dir, open: map[string]bool{}, do: do}
	defer r.close()
	if err := r.start(); err != nil {
		return err
	}
	for {
		writes := alive != nil && alive() // asked first, so that the last read has all
		if err := r.drain(ctx); err != nil {
			return err
		}
		if !writes || len(r.open) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errdefs.New(errdefs.Canceled, "logs: %w", ctx.Err())
		case <-time.After(followPause):
		}
	}
}

type reader struct {
	dir  string
	file *os.File
	buf  *bufio.Reader
	part []byte // of a line whose end is not there yet
	open map[string]bool
	do   func(Record) error
}

// start reads the previous file and opens the current one. If the writer replaces the
// current file between the two steps, it starts again.
func (r *reader) start() error {
	for {
		now, err := openLog(r.dir, current)
		if err != nil {
			return err
		}
		old, err := openLog(r.dir, previous)
		if err != nil {
			closeFile(now)
			return err
		}
		if !isCurrent(r.dir, now) {
			closeFile(now)
			closeFile(old)
			continue
		}
		if old != nil {
			r.use(old)
			err = r.records()
		}
		r.use(now)
		return err
	}
}

// use reads f from now on; nil for none.
func (r *reader) use(f *os.File) {
	closeFile(r.file)
	r.file, r.part = f, nil
	if f != nil {
		r.buf = bufio.NewReaderSize(f, 64<<10)
	}
}

func (r *reader) close() { closeFile(r.file) }

// drain reads all that is there, in the file that takes our one's place, too.
func (r *reader) drain(ctx context.Context) error {
	for ctx.Err() == nil {
		if r.file != nil {
			if err := r.records(); err != nil {
				return err
			}
		}
		if isCurrent(r.dir, r.file) {
			return nil
		}
		next, err := openLog(r.dir, current)
		if err != nil || next == nil {
			return err
		}
		if r.file != nil { // what was written to it before it was replaced
			if err := r.records(); err != nil {
				closeFile(next)
				return err
			}
		}
		r.use(next)
	}
	return errdefs.New(errdefs.Canceled, "logs: %w", ctx.Err())
}

// records reads lines to the end of the file. A line that is no record was cut
// short by a crash.
func (r *reader) records() error {
	for {
		piece, err := r.buf.ReadSlice('\n')
		r.part = append(r.part, piece...)
		if len(r.part) > maxLineBytes {
			return errdefs.New(errdefs.Precondition, "output log in %s: damaged: a line of more than %d bytes", r.dir, maxLineBytes)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errdefs.New(errdefs.Internal, "output log: %w", err)
		}
		line := bytes.TrimSpace(r.part)
		r.part = r.part[:0]
		var record Record
		if json.Unmarshal(line, &record) != nil {
			continue
		}
		r.note(record)
		if err := r.do(record); err != nil {
			return err
		}
	}
}

// note keeps which commands are not over.
func (r *reader) note(record Record) {
	switch {
	case record.Opened:
		clear(r.open)
	case record.Over:
		delete(r.open, record.Exec)
	case record.Argv != nil:
		r.open[record.Exec] = true
	}
}

// openLog opens a file of a log to read it; nil if there is none.
func openLog(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, errdefs.New(errdefs.Internal, "output log: %w", err)
	}
	return f, nil
}

// isCurrent reports whether f is the current file of the log in dir; nil stands for
// none.
func isCurrent(dir string, f *os.File) bool {
	there, err := os.Lstat(filepath.Join(dir, current))
	if f == nil || err != nil {
		return f == nil && err != nil
	}
	ours, err := f.Stat()
	return err == nil && os.SameFile(ours, there)
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}
