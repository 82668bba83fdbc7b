package fusefs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// kernel is the part of *fuseconn.Conn that the notifier needs.
type kernel interface {
	EntryNotify(parent uint64, name string) fuse.Status
	InodeNotify(node uint64, off, length int64) fuse.Status
}

// notifier makes the kernel drop cached entries. It has its own goroutine, because the
// kernel may wait for a directory or a page that a request holds, and so for the handler of
// that request.
type notifier struct {
	mu      sync.Mutex
	wake    sync.Cond
	queue   []notice
	pending map[notice]struct{} // of queue, without those with a done channel
	sends   bool                // run has notifications that it has not all sent
	closed  bool
}

// notice is one notification, for a name in node or for node itself.
type notice struct {
	node   uint64
	name   string
	offset int64 // the range of pages to drop, in bytes; length 0: to the end
	length int64
	done   chan struct{} // closed after the notification; with node 0 it only waits for its turn
}

func (q *notifier) init() {
	q.wake.L = &q.mu
	q.pending = map[notice]struct{}{}
}

// entry makes the kernel look name up again. It must not name a directory that
// still exists: getcwd(2) would fail in it.
func (q *notifier) entry(parent uint64, name string) {
	q.push(notice{node: parent, name: vpath.PlainName(name)})
}

// inode makes the kernel drop what it caches of node: attributes, pages, names.
func (q *notifier) inode(node uint64) { q.push(notice{node: node}) }

// pages is inode for a range of pages. The channel is closed when the kernel has dropped
// them.
func (q *notifier) pages(node uint64, offset, length int64) <-chan struct{} {
	done := make(chan struct{})
	q.push(notice{node: node, offset: offset, length: length, done: done})
	return done
}

// barrier waits until all earlier notifications are done.
func (q *notifier) barrier() {
	q.mu.Lock()
	idle := len(q.queue) == 0 && !q.sends
	q.mu.Unlock()
	if idle {
		return // a hand-over to another goroutine takes longer than the rest of a change of the locks
	}
	done := make(chan struct{})
	q.push(notice{done: done})
	<-done
}

func (q *notifier) push(n notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		if n.done != nil {
			close(n.done)
		}
		return
	}
	if n.done == nil {
		if _, ok := q.pending[n]; ok {
			return
		}
		q.pending[n] = struct{}{}
	}
	q.queue = append(q.queue, n)
	q.wake.Signal()
}

// run sends notifications until close.
func (q *notifier) run(k kernel) {
	for {
		q.mu.Lock()
		q.sends = false
		for len(q.queue) == 0 && !q.closed {
			q.wake.Wait()
		}
		batch := q.queue
		q.queue, q.sends = nil, true
		clear(q.pending)
		closed := q.closed
		q.mu.Unlock()
		for _, n := range batch {
			if !closed {
				n.send(k)
			}
			if n.done != nil {
				close(n.done)
			}
		}
		if closed {
			return
		}
	}
}

// send ignores errors of the kernel, which returns ENOENT if it had nothing to drop.
func (n notice) send(k kernel) {
	switch {
	case n.name != "":
		k.EntryNotify(n.node, n.name)
	case n.node != 0:
		k.InodeNotify(n.node, n.offset, n.length)
	}
}

// close ends run, which also ends all waits.
func (q *notifier) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Signal()
}
