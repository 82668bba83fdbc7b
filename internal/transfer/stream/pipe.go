package stream

import (
	"io"
	"sync"
)

// pipeBytes is how much output a program may write before its reader reads it.
const pipeBytes = 256 << 10

// Pipe is a stream of a program's output. A writer waits while it is full, a reader while it is
// empty.
type Pipe struct {
	mu   sync.Mutex
	turn *sync.Cond // signals a change of the fields below
	data []byte
	end  error // after data; nil: more may come
	read int64
}

// NewPipe returns an empty Pipe.
func NewPipe() *Pipe {
	p := &Pipe{}
	p.turn = sync.NewCond(&p.mu)
	return p
}

// Write accepts all of b, of any size, once there is room.
func (p *Pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) >= pipeBytes && p.end == nil {
		p.turn.Wait()
	}
	if p.end != nil {
		return 0, io.ErrClosedPipe
	}
	p.data = append(p.data, b...)
	p.turn.Broadcast()
	return len(b), nil
}

// Read reads the available data.
func (p *Pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) == 0 && p.end == nil {
		p.turn.Wait()
	}
	if len(p.data) == 0 {
		return 0, p.end
	}
	n := copy(b, p.data)
	if p.data = p.data[n:]; len(p.data) == 0 {
		p.data = nil // frees its memory
	}
	p.read += int64(n)
	p.turn.Broadcast()
	return n, nil
}

// Finish ends the stream with an error; io.EOF is the normal end.
func (p *Pipe) Finish(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = why
	}
	p.turn.Broadcast()
}

// Delivered is the number of bytes that were read.
func (p *Pipe) Delivered() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}
