package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// resumeLocked finds the last record of a file that another process wrote to last, or this
// one before a crash or a full disk. It adds the newline of a torn line to b, and returns
// the gaps to record.
func (l *Log) resumeLocked(b *batch, size int64) ([]Gap, error) {
	record, end, err := findLast(l.file, size)
	if err != nil {
		return nil, err
	}
	last := Head{Seq: record.Seq, Hash: record.Hash}
	b.last = last
	var gaps []Gap
	switch {
	case end == size+1: // a record of which only the newline is missing
		b.data = append(b.data, '\n')
	case end < size:
		g, newline, err := describeTorn(l.file, end, size)
		if err != nil {
			return nil, err
		}
		b.data = append(b.data, newline...)
		gaps = append(gaps, g)
	}
	head, ok := readHead(l.head)
	switch {
	case !ok && size == 0, ok && head == last:
	case !ok:
		gaps = append(gaps, Gap{Reason: GapHeadMissing})
	case head.Seq > last.Seq:
		gaps = append(gaps, Gap{Reason: GapRecordsMissing, Lost: head.Seq - last.Seq})
	case head.Seq == last.Seq:
		gaps = append(gaps, Gap{Reason: GapHeadDiffers})
	}
	// The head is older than the log if a process died between the two writes.
	return gaps, nil
}

// maxScan is how far back to search for the last record.
const maxScan = 64 << 20

// findLast returns the last record in the first size bytes of f, and the offset after its
// newline, which may be missing. Without a record it returns the zero Record and 0. Errors:
// Precondition if there is no record in the last 64 MiB.
func findLast(f io.ReaderAt, size int64) (Record, int64, error) {
	for window := int64(64 << 10); ; window *= 4 {
		start := max(0, size-window)
		data := make([]byte, size-start)
		if _, err := f.ReadAt(data, start); err != nil {
			return Record{}, 0, errdefs.New(errdefs.Internal, "read audit log: %w", err)
		}
		first := 0
		if start > 0 {
			first = bytes.IndexByte(data, '\n') + 1 // the first line is incomplete
		}
		if last, end, ok := lastIn(data, first); ok {
			return last, start + end, nil
		}
		if start == 0 {
			return Record{}, 0, nil
		}
		if window > maxScan {
			return Record{}, 0, errdefs.New(errdefs.Precondition, "audit log: no record in its last %d bytes", window)
		}
	}
}

// lastIn returns the last record in data[first:] and the end of its line.
func lastIn(data []byte, first int) (Record, int64, bool) {
	end := len(data)
	if bytes.HasSuffix(data, []byte{'\n'}) {
		end--
	}
	for end > first {
		begin := max(first, bytes.LastIndexByte(data[:end], '\n')+1)
		if r, err := parse(data[begin:end]); err == nil {
			return r, int64(end) + 1, true
		}
		end = begin - 1
	}
	return Record{}, 0, false
}

// describeTorn returns a Gap for the bytes from begin to size, which are not a record, and
// the newline to append if they have none.
func describeTorn(f io.ReaderAt, begin, size int64) (Gap, []byte, error) {
	sum, err := sumOf(f, begin, size-begin)
	if err != nil {
		return Gap{}, nil, err
	}
	var lastByte [1]byte
	if _, err := f.ReadAt(lastByte[:], size-1); err != nil {
		return Gap{}, nil, errdefs.New(errdefs.Internal, "read audit log: %w", err)
	}
	var newline []byte
	if lastByte[0] != '\n' {
		newline = []byte{'\n'}
		sum.Write(newline)
	}
	return Gap{
		Reason: GapTorn, Offset: begin, Bytes: size - begin + int64(len(newline)),
		SHA256: hex.EncodeToString(sum.Sum(nil)),
	}, newline, nil
}

// sumOf hashes length bytes of f from begin.
func sumOf(f io.ReaderAt, begin, length int64) (hash.Hash, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, begin, length)); err != nil {
		return nil, errdefs.New(errdefs.Internal, "read audit log: %w", err)
	}
	return sum, nil
}
