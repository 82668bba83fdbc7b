package fusefs

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// prefetcher stores the contents of small files in the kernel's cache before
// they are asked for, while somebody reads one file of a directory after the
// other: a store costs a third of a READ, and goes on beside the reader.
//
// Nothing is stored of a file that is not readable: the policy is asked with
// gate held, and replaced with gate held exclusively. Nothing stale is stored:
// only files whose content nobody has asked for or changed through the mount
// (flagTouched), each once (flagStored), and a request that comes while its
// file is being stored makes the store fail before it is answered. What can
// have been stored after a write was copied into a page and before its request
// came is dropped by that request, between the change and the answer.
type prefetcher struct {
	fs      *FS
	gate    sync.RWMutex // no handler takes it
	hint    atomic.Int32 // the window that a directory begins with
	jobs    chan job
	storers [2]storer
}

// job is a file to store.
type job struct {
	node  *node
	batch *batch
}

// batch is what one READ makes the storers do. The READ is answered when half
// of it is done, so that the reader meets the rest just in time.
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
	at  *node  // what is being stored
	buf []byte // mapped, so that it can be made unreadable
	cut bool   // and was
}

// sequence is who reads files in a directory's order. It is guarded by dir.mu.
type sequence struct {
	last   int // index of the entry read last
	window int // entries stored ahead of the reader
	begun  bool
}

const (
	pageBytes   = 4096
	storeBytes  = 8 * pageBytes // a larger file is read ahead by the kernel
	firstWindow = 4             // entries
	lastWindow  = 128
	freeWindow  = 8 // so few are not worth a doubt
	// aheadTime bounds how long a READ is held back. Nobody stands in meanwhile:
	// another thread at the device would cost the reader more than it waits.
	aheadTime = 5 * time.Millisecond
	// settleTime bounds the wait for the kernel to drop pages before a write
	// is answered. It only passes in full if that write itself holds the page,
	// and then nothing stale is in it.
	settleTime = 100 * time.Millisecond
	// settledAfter is for how long further changes settle their own pages: a
	// write may have been copied into its page before the store came over it,
	// and be asked for only after the first change was answered.
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

// touch says that content of n was asked for. It reports false if n is being
// stored just now: then its pages may be what a storer waits for, and the
// caller must not wait for a storer.
func (f *prefetcher) touch(n *node) bool {
	old := n.flags.Or(flagTouched)
	return old&(flagTouched|flagStored) != flagStored || !f.abort(n)
}

// overwritten are pages of a node that a storer may have put old content into.
// The zero value is none.
type overwritten struct {
	node   *node
	offset int64
	length int64
}

// overwrite says that the content of n is about to change, length bytes from
// offset on; 0 is all. What it returns is to be settled after the change and
// before the answer: the kernel copies a write into its pages before it asks,
// so a store may have come over them.
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
		return overwritten{} // beyond, where the request itself may hold a page
	}
	return overwritten{n, int64(offset), int64(end - offset)}
}

// settle has the kernel drop the pages. It must not do so before the change is
// made: whoever reads them in between would bring the old content back. Changes
// that come meanwhile settle their own.
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

// abort makes a store of n that is under way fail, and reports whether there
// may have been one. Two storers may have n in hand, of which one will find
// that the other was first: both are stopped.
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

// after is told of each small file that was read whole, and has stored what
// seems to be next.
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
		default: // busy with somebody else's
			return
		}
	}
	select {
	case <-b.half:
	case <-time.After(aheadTime):
	}
}

// ahead returns the names that whoever read name is likely to read next.
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
			f.hint.Store(int32(s.window / 2)) // until the reader comes to its end
		}
	case at > s.last && at <= s.last+firstWindow:
		s.window = min(max(2*s.window, firstWindow), lastWindow)
		f.hint.Store(int32(s.window))
	case at < s.last && at >= s.last-s.window:
		return nil // it overtook what it had stored
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

// scan bounds the search for an entry.
const scan = 1024

// position returns the index of name in the entries, -1 if it is not near.
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

// store stores n's content if that is allowed and of use. The caller holds
// gate.
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

// claim says that n is about to be stored, unless its content was asked for or
// another storer was first.
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

// load reads n's content if it is small and what the kernel was told of.
func (s *storer) load(n *node) int {
	fs := s.f.fs
	fs.moves.RLock() // not while storing: a handler may need it that holds a page
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
	if info.Size == 0 || info.Size > int64(len(s.buf)) || info.Shared || !fs.asShown(n, &info) {
		return 0
	}
	size, err := pread(file.Fd(), s.buf[:info.Size], 0)
	if err != nil || int64(size) != info.Size {
		return 0
	}
	return size
}
