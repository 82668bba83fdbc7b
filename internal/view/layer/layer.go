// Package layer stores what a sandbox changed, and leaves the source untouched.
//
// A Stack is a source directory under frozen layers and one writable delta, which
// have the form of OCI image layers (docs/adr/0002-delta-format.md). Stacks share
// frozen layers (0070-snapshots.md). A crash leaves the state before an operation or
// after it. Files are reached by handle: no symbolic link is followed, no FIFO or device
// opened, no mount in the source entered. Inode numbers stay with a file over copy-up,
// rename and restart. Package journal keeps what paths were in the source. Policy, FUSE
// and merging are left to others.
//
// A Stack is safe for concurrent use. Lock order: flights (one copy-up per path), Stack.ns
// (shared by look-ups, exclusive for changes of names), Orphan.mu, Stack.writers (shared by
// writes, exclusive for Freeze), the journal's, links.mu, and the leaves dirCache.mu, quota.mu,
// inodes.mu, orphanMu, garbageMu, contents.mu and substitutes.mu. Contents are copied up without
// Stack.ns. No goroutine outlives a call.
package layer

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// Options says what Open opens. Source cannot be missing, and Dir only for a ReadOnly stack.
type Options struct {
	// Source is a handle (O_PATH|O_DIRECTORY is enough) on the source directory. The caller
	// closes it after Close.
	Source *os.File
	// Dir is the host path of the stack's own directory. Open makes it with mode 0700 if it
	// is absent; its parent must exist. The caller's lock must ensure that only one writer
	// has the stack open. A ReadOnly stack with an empty Dir is the source alone: nobody
	// writes to it, so it caches directories as a writer does.
	Dir string
	// Store is the host path of the directory of frozen layers, on the same file system as Dir.
	// Stacks share it. Freeze makes it if it is absent. A stack without it cannot be frozen.
	Store string
	// Quota limits what the stack stores.
	Quota Quota
	// QuotaOf is a stack on the same file system with which this one shares the quota, in
	// place of Quota. Several stacks may share one.
	QuotaOf *Stack
	// Kept returns the names of the highest frozen layers of snapshots of this stack. They and
	// those below count towards the quota even if the stack no longer shows them. Nil: there are
	// none.
	Kept func() ([]string, error)
	// ReadOnly opens the stack while another process may write to it. The stack then writes
	// nothing, sweeps nothing and, without KeepDirs, caches nothing between calls.
	ReadOnly bool
	// KeepDirs is for a ReadOnly stack whose caller reads many paths that Changes has listed. The
	// stack then finds a directory where it was up to a second ago, but not before the last call
	// of Changes.
	KeepDirs bool
	// User is the user whose rights to the source apply. The stack refuses what that user
	// may not do, although this process has the capability to do it, or would do it in the
	// delta. With nil the stack checks nothing.
	User *User
	// Absent reports whether the view hides the source's entry at a path, with everything
	// below it. The stack does not call Absent for paths below. The layers above may have
	// another entry at the path. Changes, an apply and the methods that read the source
	// ignore Absent. Nil hides nothing.
	Absent func(p vpath.Path, isDir bool) bool
	// Plain hides the source's sockets, FIFOs and devices, as Absent does.
	Plain bool
	// Substitutes shows files of the source with another content. Nil substitutes nothing.
	// A ReadOnly stack ignores it.
	Substitutes *Substitutes
	// Share is by how much the process's descriptors that this stack may hold open are divided,
	// because other stacks have some too; 0 means 1.
	Share int
	// MountPoints are directories on which others mount. Where nothing is, an empty read-only
	// directory is shown, as for a mount nested in the source. None of them can be removed,
	// and none of their parent directories can be renamed.
	MountPoints []vpath.Path
	// Elsewhere says that Source is not the directory on which the changes were made.
	// Changes then also lists as deleted every recorded path that Source does not have. It
	// needs ReadOnly.
	Elsewhere bool

	opened int // how often Open has failed
}

// Quota limits the delta, the frozen layers and the recorded contents together. Zero means
// no limit. An operation that would exceed a limit fails with EDQUOT.
type Quota struct {
	Bytes  int64 // bytes of allocated blocks; making an entry needs room for two
	Inodes int64 // files, directories, links and special files; not whiteouts
}

// Stack is an open stack of layers. The zero value is not usable.
type Stack struct {
	o       Options
	busy    busyPaths
	home    int      // handle on Options.Dir
	work    int      // unfinished files, swept at Open
	orphans int      // files without a name, swept at Open
	layers  []*layer // 0 is the delta, then frozen layers; the last is the source

	ns      sync.RWMutex
	writers sync.RWMutex
	gen     atomic.Uint64 // counts freezes; changes under ns and writers

	dirs        dirCache
	listings    listings
	quota       quota
	inodes      inodes
	journal     *journal.Journal
	casefolds   casefolds
	flights     flights
	substitutes substitutes
	transforms  struct {
		of       atomic.Pointer[func(vpath.Path) *Transform]
		contents contents
	}
	seq     atomic.Uint64 // names in work and orphans
	noClone atomic.Bool   // blocks cannot be shared with the source
	pins    atomic.Int64  // handles of orphans
	maxPins int64         // of pins

	sourceRoot   int // handle; also the last layer's root
	sourceDev    uint64
	sourceRemote bool
	covered      map[vpath.Path]struct{} // paths that keepCovered has recorded; guarded by ns
	links        links
	rootTouched  bool   // the delta determines the root's mode; guarded by ns
	blank        string // in work/, an empty file of which whiteouts are hard links; guarded by ns

	orphanMu    sync.Mutex
	orphanLinks map[uint64]uint32 // names in orphan/ by backing inode

	garbageMu sync.Mutex
	garbage   []string // directories in work/ to remove
}

// layer is one directory of the stack.
type layer struct {
	root   int // O_PATH handle
	origin Origin

	// Only of a frozen layer:
	name  string                  // in Options.Store
	home  int                     // handle of its directory
	links map[uint64][]vpath.Path // see frozenNames
}

func (l *layer) close() {
	unix.Close(l.root)
	l.root = -1 // so that a late call fails with EBADF
	if l.origin == Frozen {
		unix.Close(l.home)
	}
}

// sourceTTL is how long a directory that was moved in the source may still be found at its
// old path, unless the owner calls Invalidate. It equals the time-out of kernel attributes
// that no watch covers.
const sourceTTL = time.Second

// Open opens or makes the stack in o.Dir. Unless ReadOnly is set, it first removes
// unfinished files and orphans that a crash left. Errors: Invalid, Unsupported (the kernel
// lacks openat2), Denied, Exhausted, Internal.
func Open(o Options) (*Stack, error) {
	s := &Stack{o: o, home: -1, work: -1, orphans: -1, orphanLinks: map[uint64]uint32{}, covered: map[vpath.Path]struct{}{}, maxPins: pinLimit(o.Share)}
	s.quota.ledger = &ledger{}
	switch {
	case o.Source == nil:
		return nil, errdefs.New(errdefs.Invalid, "open layers: no source")
	case o.Dir == "" && !o.ReadOnly:
		return nil, errdefs.New(errdefs.Invalid, "open layers: no directory for the changes")
	}
	err := s.open()
	if err != nil {
		if s.journal != nil {
			_ = s.journal.Close() // err is the error to report
		}
		s.closeHandles()
		if errors.Is(err, errLayerGone) && o.ReadOnly && o.opened < tries {
			o.opened++ // the writer has squashed the layers meanwhile
			return Open(o)
		}
		return nil, wrap("open layers of", vpath.Root, err)
	}
	return s, nil
}

func (s *Stack) open() error {
	if s.o.Dir == "" {
		s.dirs.init(sourceTTL, s.o.Share)
		return s.openSource()
	}
	if err := s.openHome(); err != nil {
		return err
	}
	if err := s.openLayers(); err != nil {
		return err
	}
	if err := s.openSource(); err != nil {
		return err
	}
	ttl := sourceTTL
	if s.o.ReadOnly && !s.o.KeepDirs {
		ttl = 0
	}
	s.dirs.init(ttl, s.o.Share)
	if err := s.openJournal(); err != nil {
		return err
	}
	if s.o.ReadOnly {
		return nil
	}
	if err := s.quota.open(s); err != nil {
		return err
	}
	if err := s.countKept(); err != nil {
		return err
	}
	return s.squashMany(maxFrozen)
}

func (s *Stack) openJournal() error {
	var below []int
	for _, l := range slices.Backward(s.frozen()) {
		below = append(below, l.home)
	}
	j, recorded, err := journal.Open(journal.Options{
		Home: s.home, Below: below, Work: s.work, Temp: s.temp, Quota: &s.quota, InPlace: writesInPlace(s.home), ReadOnly: s.o.ReadOnly,
	})
	if err != nil {
		return err
	}
	s.journal = j
	s.inodes.reset(recorded.Aliases)
	_, s.rootTouched = recorded.Bases[vpath.Root]
	return nil
}

func (s *Stack) openHome() error {
	if !s.o.ReadOnly {
		if err := safefs.MakePrivateDir(unix.AT_FDCWD, s.o.Dir); err != nil {
			return err
		}
	}
	var err error
	if s.home, err = unix.Open(s.o.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if s.o.ReadOnly {
		return nil
	}
	if s.work, err = s.privateDir("work"); err != nil {
		return err
	}
	if s.orphans, err = s.privateDir("orphan"); err != nil {
		return err
	}
	if err := emptyDir(s.work, s.work, &s.seq); err != nil {
		return err
	}
	return emptyDir(s.orphans, s.work, &s.seq)
}

// privateDir opens the directory name in the stack's directory, which it makes if it is
// absent.
func (s *Stack) privateDir(name string) (int, error) {
	if err := safefs.MakePrivateDir(s.home, name); err != nil {
		return -1, err
	}
	return openDir(s.home, name)
}

func (s *Stack) openSource() error {
	fd, err := unix.Openat(int(s.o.Source.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.layers = append(s.layers, &layer{root: fd, origin: Source})
	s.sourceRoot = fd
	st, err := statFd(fd)
	if err != nil {
		return err
	}
	s.sourceDev = st.dev
	s.sourceRemote, err = isRemote(fd)
	return err
}

// openLayers opens top and the frozen layers below, the newest first. A writer makes top if it is
// absent, because the stack is new. A reader may find a stack that has no directories yet.
func (s *Stack) openLayers() error {
	fd, err := openDir(s.home, "top")
	if err == nil {
		s.layers = append(s.layers, &layer{root: fd, origin: Delta})
	} else if err != unix.ENOENT {
		return err
	}
	found := err == nil
	if err := s.openFrozen(); err != nil {
		return err
	}
	if found || s.o.ReadOnly {
		return nil
	}
	fresh, err := makeTop(s.home, -1)
	if err != nil {
		return err
	}
	s.layers = append([]*layer{{root: fresh, origin: Delta}}, s.layers...)
	return nil
}

// Close closes every handle. Files and orphans of the stack are unusable afterwards. It
// does not wait for running calls.
func (s *Stack) Close() error {
	s.ns.Lock()
	defer s.ns.Unlock()
	s.writers.Lock()
	defer s.writers.Unlock()
	s.gen.Add(1)
	var err error
	if s.journal != nil {
		err = s.journal.Close()
	}
	s.closeHandles()
	return err
}

func (s *Stack) closeHandles() {
	s.dirs.purge(vpath.Root)
	s.ForgetSubstitutes()
	for _, l := range s.layers {
		l.close()
	}
	s.sourceRoot = -1
	for _, fd := range []*int{&s.home, &s.work, &s.orphans} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// top is the writable layer's index, bottom the source's.
const top = 0

func (s *Stack) bottom() int { return len(s.layers) - 1 }

// frozen returns the frozen layers, the newest first.
func (s *Stack) frozen() []*layer {
	var frozen []*layer
	for _, l := range s.layers {
		if l.origin == Frozen {
			frozen = append(frozen, l)
		}
	}
	return frozen
}

// writable returns an error if the stack is read-only.
func (s *Stack) writable() error {
	if s.o.ReadOnly {
		return unix.EROFS
	}
	return nil
}

// temp returns a name that is unused in work and orphans.
func (s *Stack) temp() string { return strconv.FormatUint(s.seq.Add(1), 10) }
