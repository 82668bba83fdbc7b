// Package parallel does many small things at once, where the kernel takes most of the time of each.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// few is how many things are done one after the other, because goroutines would take longer.
const few = 16

// Each calls do for each number below n, in several goroutines if there are many, and waits for all
// calls. After an error it begins no other call. It returns the error of the lowest number.
func Each(n int, do func(i int) error) error {
	workers := runtime.GOMAXPROCS(0)
	if n <= few {
		workers = 1
	}
	w := work{n: n, do: do, failed: n}
	var group sync.WaitGroup
	for range workers - 1 {
		group.Go(w.run)
	}
	w.run()
	group.Wait()
	return w.err
}

// work is a call of Each.
type work struct {
	n    int
	do   func(i int) error
	next atomic.Int64
	stop atomic.Bool

	mu     sync.Mutex
	failed int // the number whose error is err
	err    error
}

func (w *work) run() {
	for i := w.take(); i < w.n && !w.stop.Load(); i = w.take() {
		if err := w.do(i); err != nil {
			w.fail(i, err)
		}
	}
}

func (w *work) take() int { return int(w.next.Add(1) - 1) }

func (w *work) fail(i int, err error) {
	w.stop.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if i < w.failed {
		w.failed, w.err = i, err
	}
}
