package journal

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// table is the combined result of the records of a log.
type table struct {
	bases    map[vpath.Path]Base
	aliases  map[uint64]Alias
	contents map[sha256Sum]Span // lines of contents
	lines    int                // of the log that is read now

	// What the journal's own log says, as against the segments below: paths and backing files.
	segment int
	own     map[vpath.Path]struct{}
	ownInos map[uint64]struct{}

	end      int64 // the offset after the last byte that is not zero; 0 without a header
	endsLine bool  // that byte ends a line
	headless bool  // a crash lost the first line
}

func newTable() *table {
	return &table{
		bases: map[vpath.Path]Base{}, aliases: map[uint64]Alias{}, contents: map[sha256Sum]Span{},
		own: map[vpath.Path]struct{}{}, ownInos: map[uint64]struct{}{},
	}
}

// lineMax bounds a line: a content of InlineMax bytes or a path, with each byte
// escaped, and the fields before it.
const lineMax = 256 << 10

// read reads the whole log, after those of the segments below. One that is absent is empty.
// Errors: Unsupported for a log of another version.
func (j *Journal) read() (*table, error) {
	j.mu.Lock()
	segments := j.segmentsLocked()
	j.mu.Unlock()
	return readAll(segments)
}

// segmentsLocked returns all segments, the lowest first. The last is the journal's own.
func (j *Journal) segmentsLocked() []segment {
	return append(slices.Clone(j.below), segment{j.segment, j.o.Home})
}

func readAll(segments []segment) (*table, error) {
	t := newTable()
	for _, s := range segments {
		clear(t.own)
		clear(t.ownInos)
		t.segment, t.lines, t.end, t.endsLine, t.headless = s.id, 0, 0, false, false
		if err := t.readSegment(s.home); err != nil {
			return nil, err
		}
	}
	t.findContents()
	return t, nil
}

func (t *table) readSegment(home int) error {
	fd, err := openFile(home, logName, unix.O_RDONLY, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), logName)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return t.readFrom(f, info.Size())
}

// readFrom reads the first size bytes of f, because a writer may append more meanwhile. The
// buffer holds a short log whole, and any line of a long one.
func (t *table) readFrom(f io.Reader, size int64) error {
	r := bufio.NewReaderSize(io.LimitReader(f, size), int(min(size+1, lineMax)))
	torn := false // the next piece continues a line that was too long
	for off := int64(0); ; {
		piece, err := r.ReadSlice('\n')
		if n := len(bytes.TrimRight(piece, "\x00")); n > 0 {
			t.end, t.endsLine = off+int64(n), piece[n-1] == '\n'
		}
		switch {
		case off == 0:
			if err := t.header(piece, err == io.EOF); err != nil {
				return err
			}
		case err == nil && !torn:
			t.line(piece, off)
		}
		off += int64(len(piece))
		torn = err == bufio.ErrBufferFull
		if err == io.EOF {
			return nil
		}
		if err != nil && !torn {
			return err
		}
	}
}

// header checks the first line, which may also be the last.
func (t *table) header(line []byte, last bool) error {
	text := string(bytes.TrimRight(line, "\x00"))
	switch {
	case text == logHeader:
	case last && strings.HasPrefix(logHeader, text):
		t.end = 0 // the header was never written, or is torn
	case line[0] == 0:
		t.headless = true
	default:
		return errdefs.New(errdefs.Unsupported, "read %s: not written by this version", logName)
	}
	return nil
}

// line adds the record in a line at off. A damaged line counts as lost. A line with zeros
// is damaged: a crash may leave zeros in place of a block, and the bytes after them may be
// part of a content.
func (t *table) line(line []byte, off int64) {
	t.lines++
	kind, fields, ok := checkLine(line)
	switch {
	case !ok:
	case kind == recordContent: // long: only its hash is read
		var sum sha256Sum
		if n := 2 * len(sum); len(fields) > n && fields[n] == ' ' {
			if _, err := hex.Decode(sum[:], fields[:n]); err == nil {
				t.contents[sum] = Span{t.segment, off, int64(len(line))}
			}
		}
	default:
		if r, ok := parseRecord(line); ok {
			t.apply(r)
		}
	}
}

// apply adds one record to the table.
func (t *table) apply(r Record) {
	switch r.kind {
	case recordBase, recordLater, recordDrop:
		t.own[r.path] = struct{}{}
	case recordAlias, recordUnalias:
		t.ownInos[r.ino] = struct{}{}
	}
	switch r.kind {
	case recordBase:
		t.bases[r.path] = r.base
	case recordLater:
		if b, ok := t.bases[r.path]; ok && b.SameIdentity(&r.base) {
			t.bases[r.path] = r.base
		}
	case recordDrop:
		delete(t.bases, r.path)
	case recordAlias:
		t.aliases[r.ino] = r.alias
	case recordUnalias:
		delete(t.aliases, r.ino)
	}
}

// findContents sets the place of the contents in the bases.
func (t *table) findContents() {
	for p, b := range t.bases {
		if b.content != inline {
			continue
		}
		var ok bool
		if b.at, ok = t.contents[sha256Sum(b.SHA256)]; !ok {
			b.content = ""
		}
		t.bases[p] = b
	}
}

// usedContents returns the contents in logs that a base of these paths uses.
func (t *table) usedContents(paths iter.Seq[vpath.Path]) map[sha256Sum]Span {
	used := map[sha256Sum]Span{}
	for p := range paths {
		if b := t.bases[p]; b.content == inline {
			used[sha256Sum(b.SHA256)] = b.at
		}
	}
	return used
}

// A log with at most this many superseded lines, and bytes of unused contents, is not
// rewritten.
const (
	compactSlack      = 1024
	compactSlackBytes = 4 << 20
)

// isWasteful reports whether most of the journal's own log is superseded.
func (t *table) isWasteful() bool {
	used := t.usedContents(maps.Keys(t.own))
	live := len(t.own) + len(t.ownInos) + len(used)
	all := map[sha256Sum]Span{}
	for sum, at := range t.contents {
		if at.segment == t.segment {
			all[sum] = at
		}
	}
	return t.headless || t.lines >= 2*live+compactSlack || sumSpans(all) >= 2*sumSpans(used)+compactSlackBytes
}

func sumSpans(m map[sha256Sum]Span) int64 {
	n := int64(0)
	for _, at := range m {
		n += at.len
	}
	return n
}

// Bases reads the whole log and returns the last record of each path.
func (j *Journal) Bases() (map[vpath.Path]Base, error) {
	j.handles.RLock()
	defer j.handles.RUnlock()
	t, err := j.read()
	if err != nil {
		return nil, err
	}
	return t.bases, nil
}
