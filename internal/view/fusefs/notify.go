package fusefs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// kernel is what the notifier needs of *fuseconn.Conn.
type kernel interface {
	EntryNotify(parent uint64, name string) fuse.Status
	InodeNotify(node uint64, off, length int64) fuse.Status
}

// notifier tells the kernel what to forget, from a goroutine of its own: the
// kernel may have to wait for a directory or a page that a request holds, and
// that request for its handler.
type notifier struct {
	mu      sync.Mutex
	wake    sync.Cond
	queue   []notice
	pending map[notice]struct{} // of queue, without those that somebody waits for
	closed  bool
}

// notice is one notification: of a name in node, or of node itself.
type notice struct {
	node   uint64
	name   string
	offset int64 // of the pages to drop, and how many bytes; 0: to the end
	length int64
	done   chan struct{} // closed afterwards; node 0 only waits for its turn
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

// inode makes the kernel drop what it knows of node: attributes, pages, names.
func (q *notifier) inode(node uint64) { q.push(notice{node: node}) }

// pages is inode for some pages; the channel is closed once the kernel has
// dropped them.
func (q *notifier) pages(node uint64, offset, length int64) <-chan struct{} {
	done := make(chan struct{})
	q.push(notice{node: node, offset: offset, length: length, done: done})
	return done
}

// barrier waits until everything said before it is done.
func (q *notifier) barrier() {
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

// run notifies until close.
func (q *notifier) run(k kernel) {
	for {
		q.mu.Lock()
		for len(q.queue) == 0 && !q.closed {
			q.wake.Wait()
		}
		batch := q.queue
		q.queue = nil
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

// send ignores what the kernel answers: it says so if it had nothing to forget.
func (n notice) send(k kernel) {
	switch {
	case n.name != "":
		k.EntryNotify(n.node, n.name)
	case n.node != 0:
		k.InodeNotify(n.node, n.offset, n.length)
	}
}

// close ends run, which lets everybody go who waits.
func (q *notifier) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Signal()
}
