package fusefs

import (
	"errors"
	"log"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/fuseconn"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Options says what is shown, and to whom. Layer and Policy cannot be missing.
type Options struct {
	Layer  *layer.Stack // stays the caller's, to be closed after the mount has ended
	Policy *policy.Policy
	// PolicyChanged says that the delta was made under other policies too, so
	// that the names of one file may differ in class.
	PolicyChanged bool

	// UID and GID own every entry, as the view shows it: the sandbox's ids in the
	// user namespace of the mount. What they may do with an entry of another's the
	// layer says by its mode, see layer.User.
	UID, GID uint32

	// OnDenial and OnChange are told of refusals and changes, by several
	// goroutines and before whoever made one gets the answer; only of refusals
	// that were many of a kind OnDenial is told later. They must not touch the
	// mount.
	OnDenial func(Denial)
	OnChange func(Change)
	// OnSource is told, while Watch is on, of changes of the source that show in
	// the view, as OnChange is; they have no PID. Lost stands for any number. nil:
	// nobody is told.
	OnSource func(Change)
	// Owner says whose a thread is, in the mounter's pid namespace, while it
	// waits; a value that can be compared. Refusals of different owners are not
	// alike. nil: all are one's.
	Owner func(tid int) any

	Logger *slog.Logger // nil: slog.Default()
	// Descriptors bounds how many files are held open; 0 is a quarter of what
	// the process may have, at most 1024.
	Descriptors int
}

// FS is a mounted view.
//
// OPEN, FLUSH and OPENDIR answer ENOSYS, after which the kernel neither asks nor tells about opens
// any more. So there is no state for each open file: descriptors live in a bounded cache (fds.go),
// directory offsets are numbers that a name keeps (readdir.go), and what was unlinked lives until
// FORGET (remove.go).
//
// FS.moves is shared by whatever goes from a node to its path and on to the layer, and exclusive
// for links and for changes of names of directories. A node's identity and descriptor change under
// its stripe. No lock that a handler takes is held while the kernel is notified: the storers hold
// prefetcher.gate then, which only they and SetPolicy take.
//
// Goroutines: fuseconn's readers run the handlers. One goroutine notifies the kernel, two store
// file contents, one reads inotify, one reports refusals that were counted, one has the disk begin
// with large files. All end with the mount. A handler that waits for another of them, or for a
// disk, says so first (fuseconn.Conn.BeginBlocking).
type FS struct {
	o          Options
	log        *slog.Logger
	mountpoint string
	root       *node
	remote     bool

	rules    atomic.Pointer[rules]
	swap     sync.Mutex // one change of rules at a time
	moves    sync.RWMutex
	stripes  [256]sync.Mutex
	nodes    table
	fds      fdCache
	watcher  watcher
	notify   notifier
	prefetch prefetcher
	writeout writeout
	denials  denials
	telling  sync.Mutex    // of refusals that were counted
	era      atomic.Uint64 // one more with each Conclude
	watched  atomic.Bool
	stats    stats

	conn  *fuseconn.Conn
	ended chan struct{} // the server has stopped: nobody reports any more
	done  chan struct{} // everything has ended
}

// fsName is what mountinfo shows as type, after "fuse.", and source.
const fsName = "agentfense"

// Mount shows o on the directory mountpoint, by mount(2), and returns once the
// kernel's INIT was answered. The calling process must have CAP_SYS_ADMIN in
// the user namespace of its mount namespace, and must never touch the mount
// itself: not by opening, not by exec.Cmd.Dir, not by a descriptor it passes
// on. Go's fork could wait for an answer that only this process can give.
// Errors: Invalid, Denied, Unsupported (no /dev/fuse), Internal.
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
	fs.serve()
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
	fs.rules.Store(&rules{o.Policy, 1, strict})
	fs.root = fs.nodes.init()
	fs.fds.init(o.descriptors())
	fs.notify.init()
	fs.denials.kinds = map[denialKind]*denialCount{}
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
		MaxBackground:            64, // requests that read ahead
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

// logWriter passes on what the library has to say.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Warn("fuse", slog.String("message", string(b)))
	return len(b), nil
}

// serve starts the goroutines.
func (fs *FS) serve() {
	var all sync.WaitGroup
	all.Go(func() { fs.notify.run(fs.conn) })
	all.Go(fs.runDenials)
	all.Go(fs.runWriteout)
	for i := range fs.prefetch.storers {
		all.Go(fs.prefetch.storers[i].run)
	}
	if fs.watcher.file != nil {
		all.Go(fs.watcher.run)
	}
	go func() {
		fs.conn.Serve()
		fs.end()
		all.Wait()
		fs.conn.Close()
		close(fs.done)
	}()
}

// end lets go of everything that is not a goroutine's own.
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

// Unmount ends the mount; whoever still uses it gets ENOTCONN. It returns when
// everything has ended, which copies of the mount in other mount namespaces put
// off until they are gone. Errors: Internal.
func (fs *FS) Unmount() error {
	err := unix.Unmount(fs.mountpoint, unix.UMOUNT_NOFOLLOW)
	if err == unix.EBUSY {
		return fs.Abort()
	}
	return fs.unmounted(err)
}

// Abort is Unmount for all who use the mount, by copies of it too. What a
// program that still runs has written through a mapping alone may be lost.
func (fs *FS) Abort() error {
	// By MNT_FORCE the kernel ends the connection first (umount(2)).
	return fs.unmounted(unix.Unmount(fs.mountpoint, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}

// unmounted waits for the end after an unmount.
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
