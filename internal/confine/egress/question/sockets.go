package question

import (
	"context"
	"os"
)

// Sockets has the requests to the supervisor for sockets of the sandbox. Its zero value has none.
type Sockets struct {
	Ask func(id uint64) // which Answer follows

	table table[[]*os.File]
}

// Get returns sockets, which are the caller's; none if there is no answer.
func (t *Sockets) Get(ctx context.Context) []*os.File { return t.table.ask(ctx, t.Ask, nil) }

// Answer answers a request that Ask has made, once. An answer that comes too late is left to the
// garbage collector, which closes files.
func (t *Sockets) Answer(id uint64, files []*os.File) { t.table.answer(id, files) }
