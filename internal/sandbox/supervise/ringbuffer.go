package supervise

import (
	"io"
	"sync"
)

// maxRingBuffer is how much of a stream is kept, in bytes.
const maxRingBuffer = 256 << 10

// ringBuffer keeps the end of a stream that a command writes, for clients that come
// and go. While one reads, the command waits for it; without any it never does.
type ringBuffer struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    []byte // what is kept; it ends at end
	end     int64  // how much has been written
	over    bool   // nothing more comes
	readers map[*ringReader]struct{}
}

func newRingBuffer() *ringBuffer {
	p := &ringBuffer{readers: map[*ringReader]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// Write keeps b. What no reader has read yet does not give way to it.
func (p *ringBuffer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rest := b; len(rest) > 0; {
		n := min(p.roomLocked(), len(rest))
		if n == 0 {
			p.changed.Wait()
			continue
		}
		p.data = append(p.data, rest[:n]...)
		p.data = p.data[max(0, len(p.data)-maxRingBuffer):]
		p.end += int64(n)
		rest = rest[n:]
		p.changed.Broadcast()
	}
	return len(b), nil
}

// roomLocked is how much can be written before the slowest reader loses any.
func (p *ringBuffer) roomLocked() int {
	slowest := p.end
	for r := range p.readers {
		slowest = min(slowest, r.at)
	}
	return maxRingBuffer - int(p.end-slowest)
}

// close says that nothing more comes.
func (p *ringBuffer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.changed.Broadcast()
}

// read begins to read at an offset, or as near to it as there is something, and
// says how much in between is lost.
func (p *ringBuffer) read(from int64) (r *ringReader, lost int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := p.end - int64(len(p.data))
	lost = max(0, start-max(0, from))
	r = &ringReader{buffer: p, at: min(max(from, start), p.end)}
	p.readers[r] = struct{}{}
	return r, lost
}

// ringReader reads a ring buffer to its end, or until it is closed.
type ringReader struct {
	buffer *ringBuffer
	at     int64
	closed bool
}

// Read waits for something to read.
func (r *ringReader) Read(b []byte) (int, error) {
	p := r.buffer
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
func (r *ringReader) close() {
	p := r.buffer
	p.mu.Lock()
	defer p.mu.Unlock()
	r.closed = true
	delete(p.readers, r)
	p.changed.Broadcast()
}
