package question

import (
	"context"
	"os"
)

// Sockets has the requests to the supervisor for sockets of the sandbox. Its zero value has none.
type Sockets struct {
	Ask func(id uint64) // which Answer follows

	answers answers[[]*os.File]
}

// Get returns sockets, which are the caller's; none if there is no answer.
func (t *Sockets) Get(ctx context.Context) []*os.File {
	id, answer := t.answers.begin()
	t.Ask(id)
	select {
	case files := <-answer:
		return files
	case <-ctx.Done():
	}
	t.answers.end(id)
	select {
	case files := <-answer: // it came meanwhile
		return files
	default:
		return nil
	}
}

// Answer answers a request that Ask has made, once, and takes the files over.
func (t *Sockets) Answer(id uint64, files []*os.File) {
	if t.answers.give(id, files) {
		return
	}
	for _, f := range files {
		f.Close()
	}
}
