package journal

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// recordBytes is an upper bound of what a content and its usual record take in addition to
// the text, in bytes.
const recordBytes = 1 << 10

// Span is a range of the log, or of that of a segment below.
type Span struct {
	segment int
	off     int64
	len     int64
}

func (s Span) end() int64 { return s.off + s.len }

// Append appends records to the log, all or none, with the contents that Keep put
// into them. They are durable after SyncAll.
func (j *Journal) Append(records ...Record) error {
	_, err := j.AppendSpan(records...)
	return err
}

// Defer makes AppendDeferred collect its records until FlushDeferred.
func (j *Journal) Defer() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deferring = true
}

// AppendDeferred is Append for records that may be written later than the change
// that they describe. They still precede every record that is appended later.
func (j *Journal) AppendDeferred(records ...Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range records {
		j.deferred = appendRecord(j.deferred, r)
	}
	if j.deferring && len(j.deferred) < deferredMax {
		return nil
	}
	return j.writeDeferred()
}

// deferredMax bounds the records that wait, in bytes.
const deferredMax = 1 << 20

// FlushDeferred writes the deferred records and ends Defer.
func (j *Journal) FlushDeferred() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deferring = false
	return j.writeDeferred()
}

// writeDeferred writes the deferred records, which are lost if that fails. The
// caller holds mu.
func (j *Journal) writeDeferred() error {
	b := j.deferred
	j.deferred = nil
	if len(b) == 0 {
		return nil
	}
	return j.write(b)
}

// AppendSpan is Append and returns where in the log the records are, for Sync and
// WriteOut.
func (j *Journal) AppendSpan(records ...Record) (Span, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.writeDeferred(); err != nil {
		return Span{}, err
	}
	var b []byte
	brought := map[sha256Sum]int64{} // contents and what the quota counts for them
	for i := range records {
		r := &records[i]
		if r.base.text != nil {
			sum := sha256Sum(r.base.SHA256)
			if _, ok := j.kept[sum]; ok {
				j.o.Quota.AddContent(-int64(len(r.base.text)))
			} else {
				brought[sum] = int64(len(r.base.text))
				content := contentRecord(&r.base)
				b = appendRecord(slices.Grow(b, len(content.text)+recordBytes), content)
			}
		}
		b = appendRecord(b, *r)
	}
	at := Span{j.segment, j.size, int64(len(b))}
	err := j.write(b)
	for sum, n := range brought {
		if err != nil {
			j.o.Quota.AddContent(-n)
			continue
		}
		j.kept[sum] = struct{}{}
	}
	return at, err
}

// write appends b. The caller holds mu.
func (j *Journal) write(b []byte) error {
	if err := safefs.WriteAll(j.fd, b, j.size); err != nil {
		_ = unix.Ftruncate(j.fd, j.size) // else the next line closes over it
		j.fileEnd, j.settled = j.size, min(j.settled, j.size)
		return err
	}
	j.size += int64(len(b))
	if j.size > j.fileEnd {
		j.preallocate()
	}
	return nil
}

// preallocate writes zeros after the log. Records that overwrite them change
// neither the length nor the blocks of the file, so that a sync writes their bytes
// only. If it fails, later syncs take longer.
func (j *Journal) preallocate() {
	j.fileEnd = j.size
	n, err := unix.Pwrite(j.fd, make([]byte, min(max(j.size, preallocMin), preallocMax)), j.size)
	if err == nil {
		j.fileEnd += int64(n)
	}
}
