package stream

import (
	"io"
	"sync"
)

// pipeBytes is how much of its output a program may be ahead of who reads it.
const pipeBytes = 256 << 10

// Pipe is a stream of a program's output: who writes waits while it is full,
// who reads while it is empty.
type Pipe struct {
	mu   sync.Mutex
	turn *sync.Cond // what follows has changed
	data []byte
	end  error // behind data; nil: more may come
	read int64
}

// NewPipe returns an empty Pipe.
func NewPipe() *Pipe {
	p := &Pipe{}
	p.turn = sync.NewCond(&p.mu)
	return p
}

// Write takes all of b, however much that is, once there is room.
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

// Read reads what there is.
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
		p.data = nil // its room is needed no more
	}
	p.read += int64(n)
	p.turn.Broadcast()
	return n, nil
}

// Finish says that nothing more comes, and why: io.EOF at the end.
func (p *Pipe) Finish(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = why
	}
	p.turn.Broadcast()
}

// Delivered is how many bytes were read.
func (p *Pipe) Delivered() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}
