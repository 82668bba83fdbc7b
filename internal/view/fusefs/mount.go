package fusefs

import (
	"errors"
	"log"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/fuseconn"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/shown"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// Options says what the mount shows. Layer and Policy are required.
type Options struct {
	Layer  *layer.Stack // the caller closes it after the mount has ended; the mount sets its transforms
	Policy *policy.Policy
	// PolicyChanged says that the delta was also changed under other policies, so that
	// names of one file may have different classes.
	PolicyChanged bool

	// UID and GID are the owner that every entry shows: the sandbox's ids in the user
	// namespace of the mount. The mode of another user's entry shows their rights to it,
	// see layer.User.
	UID, GID uint32

	// OnDenial and OnChange get refusals and changes. Several goroutines call them, before
	// the process that caused the event gets the reply; only repeated refusals are counted
	// and reported later. They must not access the mount.
	OnDenial func(Denial)
	OnChange func(Change)
	// OnSource gets changes of the source that show in the view, while Watch is on. They
	// have no PID. Lost stands for any number of changes. It may be nil.
	OnSource func(Change)
	// Ask, if set, answers before a refusal of a file that the view shows, while the process waits.
	// withdrawn is closed when it waits no longer. When the mount is to end, Ask must return.
	// It may call SetPolicy.
	Ask func(q Question, withdrawn <-chan struct{}) Verdict
	// Owner returns the owner, a comparable value, of the thread tid of the mounter's pid
	// namespace. It is called while the thread waits. Refusals of different owners are
	// counted separately. With nil all threads have the same owner.
	Owner func(tid int) any
	// RepeatTime is the period within which equal refusals are counted as one; 0 means 5 s.
	RepeatTime time.Duration

	Logger *slog.Logger // nil: slog.Default()
	// Descriptors is how many files are kept open; 0 means a quarter of the process's
	// limit, at most 1024.
	Descriptors int

	number, views int // of the view among those of its connection, see MountAll
}

// FS is a mounted view.
//
// OPEN, FLUSH and OPENDIR answer ENOSYS, after which the kernel no longer sends them, nor
// RELEASE. So there is no state for each open file: descriptors are in a bounded cache
// (fds.go), a name keeps its directory offset (readdir.go), and an unlinked file exists
// until FORGET (remove.go).
//
// FS.moves is held shared while a handler gets a node's path and uses it with the layer,
// and exclusively for links and for changes of directories' names. A stripe guards the
// identity and the descriptor of its nodes. No lock that a handler takes is held while the
// kernel is notified: the storers hold prefetcher.gate then, which only they and SetPolicy
// take.
//
// Goroutines: fuseconn's readers run the handlers. One goroutine notifies the kernel, two
// store file contents, one reads inotify, one reports counted refusals, one starts the
// writeback of large files. All end with the mount. A handler calls
// fuseconn.Conn.BeginBlocking before it waits for another goroutine or for a disk.
type FS struct {
	o          Options
	log        *slog.Logger
	mountpoint string
	root       *node
	remote     bool

	rules     atomic.Pointer[rules]
	swap      sync.Mutex // one SetPolicy at a time
	moves     sync.RWMutex
	stripes   [256]sync.Mutex
	nodes     table
	fds       fdCache
	watcher   watcher
	notify    notifier
	prefetch  prefetcher
	writeout  writeout
	denials   denials
	once      once
	retries   retries
	reporting sync.Mutex    // one report of counted refusals at a time
	era       atomic.Uint64 // Conclude increments it
	watched   atomic.Bool
	learning  atomic.Pointer[uses.Recorder] // nil: uses are not recorded
	stats     stats

	conn  *fuseconn.Conn
	ended chan struct{} // closed when no more refusals can come
	done  chan struct{} // closed when everything has ended
}

// fsName is the source, and after "fuse." the type, that mountinfo shows.
const fsName = "agentfense"

// Mount mounts the view on the directory mountpoint, by mount(2), and returns after INIT is
// answered. The calling process must have CAP_SYS_ADMIN in the user namespace of its mount
// namespace. It must never access the mount: not by open, not by exec.Cmd.Dir, not by a
// descriptor that it passes on. Otherwise Go's fork could wait for a reply that only this
// process can give. Errors: Invalid, Denied, Unsupported (no /dev/fuse), Internal.
func Mount(mountpoint string, o Options) (*FS, error) {
	fs, err := newFS(mountpoint, o)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "mount the view: %w", err)
	}
	fs.conn, err = fuseconn.Mount(fs.mountpoint, fs, fuseconn.Options{Name: fsName, Library: fs.library(), Logger: fs.log})
	if err != nil {
		fs.end()
		return nil, errdefs.New(mountKind(err), "mount the view: %w", err)
	}
	serve(fs.conn, fs)
	return fs, nil
}

func newFS(mountpoint string, o Options) (*FS, error) {
	if o.Layer == nil || o.Policy == nil {
		return nil, errdefs.New(errdefs.Invalid, "a layer and a policy are needed")
	}
	abs, err := filepath.Abs(mountpoint)
	if err != nil {
		return nil, err
	}
	fs := &FS{
		o: o, log: o.Logger, mountpoint: abs,
		ended: make(chan struct{}), done: make(chan struct{}),
	}
	fs.o.views = max(o.views, 1)
	if fs.log == nil {
		fs.log = slog.Default()
	}
	root, err := o.Layer.Lookup(vpath.Root)
	if err != nil {
		return nil, err
	}
	fs.remote = root.Shared
	strict := strictNames{}
	if o.PolicyChanged {
		if strict, err = fs.findStrict(o.Policy); err != nil {
			return nil, err
		}
	}
	o.Layer.SetTransforms(shown.Transforms(o.Policy))
	fs.rules.Store(&rules{o.Policy, 1, strict})
	fs.root = fs.nodes.init(uint64(o.number))
	fs.fds.init(o.descriptors())
	fs.notify.init()
	fs.denials.init()
	if err := fs.prefetch.init(fs); err != nil {
		return nil, err
	}
	fs.writeout.init()
	fs.watcher.init(fs, fs.remote)
	return fs, nil
}

func (o *Options) descriptors() int {
	if o.Descriptors > 0 {
		return o.Descriptors
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 64
	}
	return int(max(8, min(lim.Cur/4, 1024)))
}

func mountKind(err error) errdefs.Kind {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return errdefs.Denied
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO):
		return errdefs.Unsupported
	}
	return errdefs.Internal
}

func (fs *FS) library() fuse.MountOptions {
	return fuse.MountOptions{
		MaxBackground:            64, // limits read-ahead requests
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		DisableXAttrs:            true,
		DisabledCapabilities:     fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_WRITEBACK_CACHE,
		Logger:                   log.New(logWriter{fs.log}, "", 0),
		PanicHandler: func(v any) fuse.Status {
			fs.log.Error("a file system handler panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			return fuse.EIO
		},
	}
}

// logWriter writes the library's messages to the log.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Warn("fuse", slog.String("message", string(b)))
	return len(b), nil
}

// serve starts the goroutines of the views of a connection.
func serve(conn *fuseconn.Conn, views ...*FS) {
	var all sync.WaitGroup
	for _, fs := range views {
		fs.start(&all)
	}
	go func() {
		conn.Serve()
		for _, fs := range views {
			fs.end()
		}
		all.Wait()
		conn.Close()
		for _, fs := range views {
			close(fs.done)
		}
	}()
}

// start starts the goroutines of one view.
func (fs *FS) start(all *sync.WaitGroup) {
	all.Go(func() { fs.notify.run(fs.conn) })
	all.Go(fs.runDenials)
	all.Go(fs.runWriteout)
	for i := range fs.prefetch.storers {
		all.Go(fs.prefetch.storers[i].run)
	}
	if fs.watcher.file != nil {
		fs.watcher.runs = true
		all.Go(fs.watcher.run)
	}
}

// end releases everything after the goroutines have ended.
func (fs *FS) end() {
	close(fs.ended)
	fs.notify.close()
	fs.watcher.close()
	fs.fds.clear()
	fs.nodes.mu.Lock()
	defer fs.nodes.mu.Unlock()
	for _, x := range fs.nodes.extras {
		x.orphan.Forget()
	}
}

// StopWatching ends the watch for changes of the source. It is for a mount that ends soon: what the
// kernel has cached is not invalidated any more.
func (fs *FS) StopWatching() { fs.watcher.close() }

// Unmount ends the mount. Processes that still use it get ENOTCONN. It returns when
// everything has ended, and so waits until copies of the mount in other mount namespaces
// are gone. Errors: Internal.
func (fs *FS) Unmount() error {
	err := unix.Unmount(fs.mountpoint, unix.UMOUNT_NOFOLLOW)
	if err == unix.EBUSY {
		return fs.Abort()
	}
	return fs.unmounted(err)
}

// Abort is Unmount, and also ends copies of the mount in other mount namespaces. Data that
// a running program has only written to a mapping may be lost.
func (fs *FS) Abort() error {
	// By MNT_FORCE the kernel ends the connection first (umount(2)).
	return fs.unmounted(unix.Unmount(fs.mountpoint, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}

// unmounted waits for the end of the mount if err, of umount(2), is nil.
func (fs *FS) unmounted(err error) error {
	if err != nil {
		select {
		case <-fs.done:
			return nil
		default:
			return errdefs.New(errdefs.Internal, "unmount the view: %w", err)
		}
	}
	<-fs.done
	return nil
}

// Done is closed when the mount has ended, by Unmount or otherwise.
func (fs *FS) Done() <-chan struct{} { return fs.done }
