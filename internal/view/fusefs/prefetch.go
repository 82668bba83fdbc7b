package fusefs

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// prefetcher stores the contents of small files in the kernel's cache before a program
// reads them, while the program reads the files of a directory in order. A store costs a
// third of a READ, and runs beside the reader.
//
// It stores only readable files: storers check the policy with gate held, and SetPolicy
// holds gate exclusively. It stores nothing stale: only files that no program has read or
// changed through the mount (flagTouched), each once (flagStored). A request for a file
// that is being stored first makes the store fail. A store may hit a page after the kernel
// copied a write into it and before the WRITE request arrives. That request drops the page,
// after the change and before the reply.
type prefetcher struct {
	fs      *FS
	gate    sync.RWMutex // no handler takes it
	hint    atomic.Int32 // the first window of a directory
	jobs    chan job
	storers [2]storer
}

// job is a file to store.
type job struct {
	node  *node
	batch *batch
}

// batch is the stores that one READ starts. The READ is answered when half of them are
// done, so that the others are done when the reader needs them.
type batch struct {
	left atomic.Int32
	half chan struct{}
}

func (b *batch) done() {
	if b.left.Add(-1) == 0 {
		close(b.half)
	}
}

// storer stores one file at a time.
type storer struct {
	f   *prefetcher
	mu  sync.Mutex
	at  *node  // the node that is being stored
	buf []byte // mapped, so that it can be made unreadable
	cut bool   // buf was made unreadable
}

// sequence is the state of a program that reads files in a directory's order. It is guarded
// by dir.mu.
type sequence struct {
	last   int // index of the entry read last
	window int // entries stored ahead of the reader
	begun  bool
}

const (
	pageBytes   = 4096
	storeBytes  = 8 * pageBytes // the kernel itself reads larger files ahead
	firstWindow = 4             // entries
	lastWindow  = 128
	freeWindow  = 8 // a window up to this is used without further evidence
	// aheadTime is how long a READ may be delayed. The handler does not call BeginBlocking:
	// another thread at the device would cost the reader more than the delay.
	aheadTime = 5 * time.Millisecond
	// settleTime is how long a write waits for the kernel to drop pages. It passes in full
	// only if the write itself holds the page, and then the page is not stale.
	settleTime = 100 * time.Millisecond
	// settledAfter is how long later changes also drop their pages: the kernel may copy a
	// write into a page before the store, and send the request after the first change was
	// answered.
	settledAfter = time.Second
)

func (f *prefetcher) init(fs *FS) error {
	f.fs = fs
	f.jobs = make(chan job, 2*lastWindow)
	for i := range f.storers {
		buf, err := unix.Mmap(-1, 0, storeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		f.storers[i] = storer{f: f, buf: buf}
	}
	return nil
}

// touch records that content of n was read. It returns false if n is being stored: a storer
// may wait for n's pages, so the caller must not wait for a storer.
func (f *prefetcher) touch(n *node) bool {
	old := n.flags.Or(flagTouched)
	return old&(flagTouched|flagStored) != flagStored || !f.abort(n)
}

// overwritten are pages of a node into which a storer may have put old content. The zero
// value means no pages.
type overwritten struct {
	node   *node
	offset int64
	length int64
}

// overwrite records that length bytes of n from offset will change; length 0 means all. The
// caller passes the result to settle after the change and before the reply: the kernel
// copies a write into its pages before it sends the request, so a store may have
// overwritten them.
func (f *prefetcher) overwrite(n *node, offset, length uint64) overwritten {
	if old := n.flags.Or(flagTouched); old&(flagOverwritten|flagStored) != flagStored {
		return overwritten{}
	}
	f.abort(n)
	end := uint64(n.flags.Load()>>storedPagesShift) * pageBytes
	if length > 0 {
		end = min(end, offset+length)
	}
	if offset >= end {
		return overwritten{} // beyond the stored pages; the request itself may hold a page there
	}
	return overwritten{n, int64(offset), int64(end - offset)}
}

// settle makes the kernel drop the pages. Call it only after the change: a read before it
// would bring the old content back. Changes that come meanwhile settle their own pages.
func (f *prefetcher) settle(o overwritten) {
	if o.node == nil {
		return
	}
	f.fs.conn.BeginBlocking() // the kernel may wait for another request first
	select {
	case <-f.fs.notify.pages(o.node.id, o.offset, o.length):
	case <-time.After(settleTime):
	}
	time.AfterFunc(settledAfter, func() { o.node.set(flagOverwritten) })
}

// abort makes a running store of n fail, and reports whether there may have been one. It
// stops both storers if both have begun with n.
func (f *prefetcher) abort(n *node) bool {
	found := false
	for i := range f.storers {
		found = f.storers[i].abort(n) || found
	}
	return found
}

func (s *storer) abort(n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != n {
		return false
	}
	s.cut = s.cut || unix.Mprotect(s.buf, unix.PROT_NONE) == nil
	return true
}

// after is called when a small file was read whole. It starts stores of the files that will
// probably be read next.
func (f *prefetcher) after(n *node) {
	f.fs.nodes.mu.RLock()
	parent, name := n.parent, n.name
	f.fs.nodes.mu.RUnlock()
	if parent == nil {
		return
	}
	names := f.ahead(parent.dir, name)
	if len(names) == 0 {
		return
	}
	b := &batch{half: make(chan struct{})}
	b.left.Store(int32(len(names)+1) / 2)
	for _, name := range names {
		next := f.fs.nodes.child(parent, name)
		if next == nil {
			b.done()
			continue
		}
		select {
		case f.jobs <- job{next, b}:
		default: // the storers are busy
			return
		}
	}
	select {
	case <-b.half:
	case <-time.After(aheadTime):
	}
}

// ahead returns the names that the reader of name will probably read next.
func (f *prefetcher) ahead(d *dir, name string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.position(name)
	s := &d.reader
	switch {
	case at < 0:
		return nil
	case !s.begun:
		s.window = int(f.hint.Load())
		if s.window > freeWindow {
			f.hint.Store(int32(s.window / 2)) // until the reader reaches the end of the window
		}
	case at > s.last && at <= s.last+firstWindow:
		s.window = min(max(2*s.window, firstWindow), lastWindow)
		f.hint.Store(int32(s.window))
	case at < s.last && at >= s.last-s.window:
		return nil // the reader was faster than the stores
	default:
		s.window = 0
	}
	s.begun, s.last = true, at
	var names []string
	for _, e := range d.entries[at+1:] {
		if len(names) == s.window {
			break
		}
		if e.mode() == unix.S_IFREG {
			names = append(names, e.name)
		}
		s.last++
	}
	return names
}

// scan is how many entries a search visits.
const scan = 1024

// position returns the index of name in the entries, or -1 if it is not near the last one.
func (d *dir) position(name string) int {
	from := min(max(d.reader.last, 0), len(d.entries))
	for i, e := range d.entries[from:min(from+scan, len(d.entries))] {
		if e.name == name {
			return from + i
		}
	}
	for i, e := range d.entries[:min(from, scan)] {
		if e.name == name {
			return i
		}
	}
	return -1
}

// run stores until the mount has ended.
func (s *storer) run() {
	defer func() { _ = unix.Munmap(s.buf) }()
	for {
		select {
		case j := <-s.f.jobs:
			s.f.gate.RLock()
			s.store(j.node)
			s.f.gate.RUnlock()
			j.batch.done()
		case <-s.f.fs.ended:
			return
		}
	}
}

// store stores n's content if that is allowed and useful. The caller holds gate.
func (s *storer) store(n *node) {
	fs := s.f.fs
	if !n.isRegular() || n.is(flagTouched|flagStored) || fs.permission(n) < policy.Read {
		return
	}
	size := s.load(n)
	if size == 0 {
		return
	}
	s.mu.Lock()
	s.at = n
	s.mu.Unlock()
	pages := uint32(size+pageBytes-1) / pageBytes
	if s.claim(n, pages) {
		fs.stats.count(opStore)
		fs.conn.InodeNotifyStoreCache(n.id, 0, s.buf[:size])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = nil
	if s.cut {
		s.cut = unix.Mprotect(s.buf, unix.PROT_READ|unix.PROT_WRITE) != nil
	}
}

// claim marks n as stored. It returns false if its content was read or another storer was
// first.
func (s *storer) claim(n *node, pages uint32) bool {
	for {
		old := n.flags.Load()
		if old&(flagTouched|flagStored) != 0 {
			return false
		}
		if n.flags.CompareAndSwap(old, old|flagStored|pages<<storedPagesShift) {
			return true
		}
	}
}

// load reads n's content if it is small and in the state that the kernel knows.
func (s *storer) load(n *node) int {
	fs := s.f.fs
	fs.moves.RLock() // released before the store: a handler that holds a page may need it
	p, ok := fs.nodes.path(n)
	if !ok {
		fs.moves.RUnlock()
		return 0
	}
	file, info, err := fs.o.Layer.Open(p, false)
	fs.moves.RUnlock()
	if err != nil {
		return 0
	}
	defer file.Close()
	if info.Size == 0 || info.Size > int64(len(s.buf)) || info.Shared || info.Borrowed || !fs.asShown(n, &info) || !fs.serves(n, file) {
		return 0
	}
	size, err := file.Pread(s.buf[:info.Size], 0)
	if err != nil || int64(size) != info.Size {
		return 0
	}
	return size
}
