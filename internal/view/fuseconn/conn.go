// Package fuseconn is a connection to the kernel's FUSE device.
//
// It mounts, answers INIT, reads requests, passes each to a fuse.RawFileSystem and sends
// the reply. It sends notifications that make the kernel drop parts of its caches. A client
// that makes one request after the other meets the same thread each time (workers.go). A
// handler that blocks does not keep the next request waiting for long. If a handler panics,
// the request is answered with EIO.
//
// The library and the file system decide what requests mean. The package does not
// access files below the mount.
//
// Conn.mu is a leaf: no handler runs and nothing is written to the device with it
// held. Readers run the handlers, and one more goroutine finds handlers that block.
// All goroutines end with the mount, before Serve returns.
package fuseconn

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// MaxWrite is the size of the largest READ and WRITE, in bytes: the kernel's
// own limit (fs.fuse.max_pages_limit).
const MaxWrite = 1 << 20

// Options says how to mount. Name is required.
type Options struct {
	// Name is the source, and after "fuse." the type, that mountinfo shows.
	Name string
	// Library has the options of the library. Mount sets MaxWrite and DisableSplice.
	Library fuse.MountOptions
	Logger  *slog.Logger // nil: slog.Default()
}

// Conn is a mounted connection.
type Conn struct {
	fd     int
	server *fuse.ProtocolServer
	log    *slog.Logger

	mu      sync.Mutex
	free    sync.Cond // a reader may become a worker, or the mount has ended
	workers []*worker // nil: free
	readers int       // goroutines, including those that wait to become a worker
	waiting int       // readers that wait to become a worker
	ended   bool

	all    sync.WaitGroup
	asleep atomic.Bool   // the watch sleeps until a request comes
	wake   chan struct{} // wakes the watch
	done   chan struct{} // the mount has ended
}

// Mount mounts fs on the directory mountpoint, by mount(2), with default_permissions and
// allow_other, and returns after INIT is answered. Serve answers the other requests. The
// calling process must have CAP_SYS_ADMIN in the user namespace of its mount namespace.
// Errors: those of open(2) of /dev/fuse and of mount(2), wrapped.
func Mount(mountpoint string, fs fuse.RawFileSystem, o Options) (*Conn, error) {
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,max_read=%d,default_permissions,allow_other",
		dev, unix.S_IFDIR, os.Geteuid(), os.Getegid(), MaxWrite)
	if err := unix.Mount(o.Name, mountpoint, "fuse."+o.Name, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		unix.Close(dev)
		return nil, err
	}
	c := newConn(dev, fs, o)
	if err := c.init(); err != nil {
		_ = unix.Unmount(mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		unix.Close(dev)
		return nil, err
	}
	return c, nil
}

func newConn(dev int, fs fuse.RawFileSystem, o Options) *Conn {
	c := &Conn{fd: dev, log: o.Logger, workers: make([]*worker, workerCount()), wake: make(chan struct{}, 1), done: make(chan struct{})}
	if c.log == nil {
		c.log = slog.Default()
	}
	c.free.L = &c.mu
	library := o.Library
	library.MaxWrite = MaxWrite
	c.server = fuse.NewProtocolServer(fs, &library)
	return c
}

// init answers the first request, which is INIT.
func (c *Conn) init() error {
	b, err := newBuffers()
	if err != nil {
		return err
	}
	defer b.free()
	n, err := c.next(b)
	if err != nil {
		return fmt.Errorf("read INIT: %w", err)
	}
	c.answer(b, n)
	return nil
}

// Serve answers requests until the mount has ended and every handler has
// returned.
func (c *Conn) Serve() {
	c.all.Go(c.watch)
	c.mu.Lock()
	for range c.workers {
		c.startLocked()
	}
	c.mu.Unlock()
	c.all.Wait()
}

// Close closes the device. Call it after Serve has returned and the last notification was
// sent.
func (c *Conn) Close() { unix.Close(c.fd) }

// next reads one request into b and returns its size.
func (c *Conn) next(b *buffers) (int, error) {
	for {
		n, err := unix.Read(c.fd, b.in)
		switch err {
		case unix.EINTR, unix.EAGAIN, unix.ENOENT: // ENOENT: interrupted before it was read
			continue
		}
		return n, err
	}
}

// answer runs the handler of the request of n bytes in b and sends the reply.
func (c *Conn) answer(b *buffers, n int) {
	b.used = max(b.used, n)
	size, st := 0, reserved(b.in[:n])
	if st.Ok() {
		size, st = c.server.HandleRequest([][]byte{b.in[:n]}, [][]byte{b.out})
	}
	if !st.Ok() {
		size = b.refuse(n, st)
	}
	if size == 0 {
		return
	}
	b.used = max(b.used, size)
	for {
		_, err := unix.Write(c.fd, b.out[:size])
		switch err {
		case unix.EINTR:
			continue
		case nil, unix.ENOENT, unix.ENODEV: // the kernel no longer waits for the reply
			return
		}
		c.log.Warn("fuse: the kernel refused a reply", slog.Any("error", err), slog.Int("bytes", size))
		return
	}
}
