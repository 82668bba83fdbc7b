package outlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Writer writes the log of one sandbox. There is one at a time.
type Writer struct {
	dir   *os.File // the sandbox's
	limit int64    // bytes of a file

	mu     sync.Mutex
	file   *os.File // nil until there is something to write
	size   int64
	closed bool
	lost   int64
	begun  map[string]*command
}

// command is the state of a command that is not over.
type command struct {
	argv [][]byte
	open int // the command itself, and its streams
}

// Open returns the writer of the log in dir, which the caller closes. If there is a log, it
// adds an Opened record.
func Open(dir *os.File) *Writer {
	w := &Writer{dir: dir, limit: maxBytes, begun: map[string]*command{}}
	if f, err := w.openFile(current, os.O_RDONLY); err == nil {
		f.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.appendLocked(Record{Opened: true})
	}
	return w
}

// openFile opens a file of the log; never a link or anything else that waits.
func (w *Writer) openFile(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(w.dir.Fd()), name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Begin records the start of a command with the given number of streams.
func (w *Writer) Begin(exec string, argv [][]byte, streams int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun[exec] = &command{argv: argv, open: 1 + streams}
	w.appendLocked(Record{Exec: exec, Argv: argv})
}

// End records how a command ended. Background processes may still use its streams.
func (w *Writer) End(exec string, exit Exit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appendLocked(Record{Exec: exec, Exit: &exit})
	w.closeLocked(exec)
}

// Cancel records that a command of Begin never ran.
func (w *Writer) Cancel(exec string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun[exec] == nil {
		return
	}
	delete(w.begun, exec)
	w.appendLocked(Record{Exec: exec, Over: true})
}

// Stream returns a writer for a stream of a running command. Close it at the end of the
// stream.
func (w *Writer) Stream(exec string, stream Stream) io.WriteCloser {
	return &streamWriter{w: w, exec: exec, stream: stream}
}

type streamWriter struct {
	w      *Writer
	exec   string
	stream Stream
}

// Write keeps b. It never fails.
func (s *streamWriter) Write(b []byte) (int, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.appendLocked(Record{Exec: s.exec, Stream: s.stream, Data: b})
	return len(b), nil
}

// Close says that nothing more comes.
func (s *streamWriter) Close() error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.closeLocked(s.exec)
	return nil
}

// closeLocked decrements the number of open parts of a command.
func (w *Writer) closeLocked(exec string) {
	c := w.begun[exec]
	if c == nil {
		return
	}
	if c.open--; c.open == 0 {
		delete(w.begun, exec)
		w.appendLocked(Record{Exec: exec, Over: true})
	}
}

// appendLocked writes a record. What the disk does not take is counted.
func (w *Writer) appendLocked(r Record) {
	if w.closed {
		return
	}
	if w.lost > 0 {
		if w.writeLocked(Record{LostBytes: w.lost}) != nil {
			w.lost += int64(len(r.Data))
			return
		}
		w.lost = 0
	}
	if w.writeLocked(r) != nil {
		w.lost += max(1, int64(len(r.Data)))
	}
}

// writeLocked writes a record as a line, whole or not at all.
func (w *Writer) writeLocked(r Record) error {
	r.Time = time.Now().UTC()
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if w.file == nil {
		if err := w.startLocked(); err != nil {
			return err
		}
	}
	if w.size > 0 && w.size+int64(len(line)) > w.limit {
		if err := w.rotateLocked(); err != nil {
			return err
		}
	}
	n, err := w.file.WriteAt(line, w.size)
	if err != nil {
		return errors.Join(err, w.file.Truncate(w.size))
	}
	w.size += int64(n)
	return nil
}

// startLocked opens the current file. It ends an incomplete line that a crash left, which
// readers skip.
func (w *Writer) startLocked() error {
	f, err := w.openFile(current, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a file", current)
	}
	if err != nil {
		f.Close()
		return err
	}
	w.file, w.size = f, info.Size()
	if w.size == 0 {
		return nil
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], w.size-1); err == nil && last[0] != '\n' {
		n, _ := f.WriteAt([]byte{'\n'}, w.size) // the next line is lost if this fails
		w.size += int64(n)
	}
	return nil
}

// rotateLocked begins a new file with the commands that are not over.
func (w *Writer) rotateLocked() error {
	dir := int(w.dir.Fd())
	if err := unix.Renameat(dir, current, dir, previous); err != nil {
		return err
	}
	w.file.Close()
	w.file, w.size = nil, 0
	if err := w.startLocked(); err != nil {
		return err
	}
	for exec, c := range w.begun {
		if err := w.writeLocked(Record{Exec: exec, Argv: c.argv, Again: true}); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the file. Later output is not stored.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
