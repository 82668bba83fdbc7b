package supervise

import (
	"io"
	"sync"
)

// maxSpool is how much of a stream is kept, in bytes.
const maxSpool = 256 << 10

// spool keeps the end of a stream that a command writes, for clients that come
// and go. While one reads, the command waits for it; without any it never does.
type spool struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    []byte // what is kept; it ends at end
	end     int64  // how much has been written
	over    bool   // nothing more comes
	readers map[*spoolReader]struct{}
}

func newSpool() *spool {
	p := &spool{readers: map[*spoolReader]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// Write keeps b. What no reader has read yet does not give way to it.
func (p *spool) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rest := b; len(rest) > 0; {
		n := min(p.roomLocked(), len(rest))
		if n == 0 {
			p.changed.Wait()
			continue
		}
		p.data = append(p.data, rest[:n]...)
		p.data = p.data[max(0, len(p.data)-maxSpool):]
		p.end += int64(n)
		rest = rest[n:]
		p.changed.Broadcast()
	}
	return len(b), nil
}

// roomLocked is how much can be written before the slowest reader loses any.
func (p *spool) roomLocked() int {
	slowest := p.end
	for r := range p.readers {
		slowest = min(slowest, r.at)
	}
	return maxSpool - int(p.end-slowest)
}

// close says that nothing more comes.
func (p *spool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.changed.Broadcast()
}

// read begins to read at an offset, or as near to it as there is something, and
// says how much in between is lost.
func (p *spool) read(from int64) (r *spoolReader, lost int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := p.end - int64(len(p.data))
	lost = max(0, start-max(0, from))
	r = &spoolReader{spool: p, at: min(max(from, start), p.end)}
	p.readers[r] = struct{}{}
	return r, lost
}

// spoolReader reads a spool to its end, or until it is closed.
type spoolReader struct {
	spool  *spool
	at     int64
	closed bool
}

// Read waits for something to read.
func (r *spoolReader) Read(b []byte) (int, error) {
	p := r.spool
	p.mu.Lock()
	defer p.mu.Unlock()
	for !r.closed && r.at == p.end && !p.over {
		p.changed.Wait()
	}
	if r.closed || r.at == p.end {
		return 0, io.EOF
	}
	n := copy(b, p.data[len(p.data)-int(p.end-r.at):])
	r.at += int64(n)
	p.changed.Broadcast()
	return n, nil
}

// close ends what waits in Read, and keeps nothing up any more.
func (r *spoolReader) close() {
	p := r.spool
	p.mu.Lock()
	defer p.mu.Unlock()
	r.closed = true
	delete(p.readers, r)
	p.changed.Broadcast()
}
