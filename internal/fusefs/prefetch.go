package fusefs

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/policy"
)

// prefetcher stores the contents of small files in the kernel's cache before
// they are asked for, while somebody reads one file of a directory after the
// other: a store costs a fifth of a READ.
//
// Nothing is stored of a file that is not readable: the policy is asked, and
// replaced, with busy held. Nothing stale is stored: only files whose content
// nobody has asked for or changed through the mount (flagTouched), each once
// (flagStored), and a request that comes while its file is being stored makes
// the store fail before it is answered. What can have been stored after a
// write was copied into a page and before its request came is dropped by that
// request.
type prefetcher struct {
	fs   *FS
	busy sync.Mutex // handlers only try it; see FS.after
	hint atomic.Int32

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
	storeBytes  = 32 << 10 // a larger file is read ahead by the kernel
	firstWindow = 4        // entries
	lastWindow  = 64
	freeWindow  = 8 // so few are not worth a doubt
	// settleTime bounds the wait for the kernel to drop pages before a write
	// is answered. It only passes in full if that write itself holds the page,
	// and then nothing stale is in it.
	settleTime = 100 * time.Millisecond
)

func (f *prefetcher) init(fs *FS) error {
	f.fs = fs
	var err error
	f.buf, err = unix.Mmap(-1, 0, storeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return err
}

func (f *prefetcher) close() {
	f.busy.Lock()
	defer f.busy.Unlock()
	_ = unix.Munmap(f.buf)
	f.buf = nil
}

// touch says that content of n was asked for.
func (f *prefetcher) touch(n *node) {
	if old := n.flags.Or(flagTouched); old&(flagTouched|flagStored) == flagStored {
		f.abort(n)
	}
}

// overwrite says that content of n is about to change.
func (f *prefetcher) overwrite(n *node) {
	if old := n.flags.Or(flagTouched | flagOverwritten); old&(flagOverwritten|flagStored) != flagStored {
		return
	}
	f.abort(n)
	select {
	case <-f.fs.notify.inodeDone(n.id):
	case <-time.After(settleTime):
	}
}

// abort makes a store of n that is under way fail.
func (f *prefetcher) abort(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == n && !f.cut {
		f.cut = unix.Mprotect(f.buf, unix.PROT_NONE) == nil
	}
}

// after is told of each small file that was read whole, and stores what seems
// to be next.
func (f *prefetcher) after(n *node) {
	if !f.busy.TryLock() {
		return
	}
	defer f.busy.Unlock()
	f.fs.nodes.mu.RLock()
	parent, name := n.parent, n.name
	f.fs.nodes.mu.RUnlock()
	if f.buf == nil || parent == nil {
		return
	}
	for _, name := range f.ahead(parent.dir, name) {
		if next := f.fs.nodes.child(parent, name); next != nil {
			f.store(next)
		}
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
	case at > s.last && at <= s.last+s.window+firstWindow:
		s.window = min(max(2*s.window, firstWindow), lastWindow)
		f.hint.Store(int32(s.window))
	default:
		s.window = 0
	}
	s.begun, s.last = true, at
	var names []string
	for _, e := range d.entries[at+1:] {
		if len(names) == s.window {
			break
		}
		if e.mode&unix.S_IFMT == unix.S_IFREG {
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

// store stores n's content if that is allowed and of use. The caller holds
// busy.
func (f *prefetcher) store(n *node) {
	if !n.isRegular() || n.is(flagTouched|flagStored) || f.fs.permission(n) < policy.Read {
		return
	}
	size := f.load(n)
	if size == 0 {
		return
	}
	f.mu.Lock()
	f.at = n
	f.mu.Unlock()
	if old := n.flags.Or(flagStored); old&flagTouched == 0 {
		f.fs.stats.count(opStore)
		f.fs.server.InodeNotifyStoreCache(n.id, 0, f.buf[:size])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = nil
	if f.cut {
		f.cut = unix.Mprotect(f.buf, unix.PROT_READ|unix.PROT_WRITE) != nil
	}
}

// load reads n's content if it is small and what the kernel was told of.
func (f *prefetcher) load(n *node) int {
	fs := f.fs
	fs.moves.RLock()
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
	if info.Size == 0 || info.Size > int64(len(f.buf)) || info.Shared || !fs.asShown(n, &info) {
		return 0
	}
	size, err := file.ReadAt(f.buf, 0)
	if err != nil || int64(size) != info.Size {
		return 0
	}
	return size
}

// Init is called with the server that answers the kernel.
func (fs *FS) Init(s *fuse.Server) { fs.server = s }
