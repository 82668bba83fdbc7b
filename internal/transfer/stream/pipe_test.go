package stream

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestPipeHoldsAWriterUpAndLosesNothing(t *testing.T) {
	p := NewPipe()
	written := make(chan int)
	go func() {
		total := 0
		for range 10 {
			n, err := p.Write(make([]byte, pipeBytes/2))
			if err != nil {
				t.Error(err)
			}
			total += n
		}
		p.Finish(io.EOF)
		p.Finish(errors.New("a second end"))
		written <- total
	}()
	got, err := io.ReadAll(p)
	if total := <-written; err != nil || len(got) != total || p.Delivered() != int64(total) {
		t.Errorf("%d of %d bytes, %v", len(got), total, err)
	}
	if _, err := p.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write after the end: %v", err)
	}
	// The end frees who waits.
	p = NewPipe()
	full := make(chan error)
	go func() {
		_, err := p.Write(make([]byte, pipeBytes))
		if err == nil {
			_, err = p.Write([]byte("x"))
		}
		full <- err
	}()
	testenv.Eventually(t, "it waits, or is about to", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.data) == pipeBytes
	})
	p.Finish(context.Canceled)
	if err := <-full; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("who wrote into a full pipe: %v", err)
	}
	if rest, err := io.ReadAll(p); len(rest) != pipeBytes || !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
}
