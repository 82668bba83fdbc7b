package codebase

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Names that are not ids of codebases.
const (
	makingPrefix = ".making-"
	gonePrefix   = ".gone-"
	lockFile     = "lock"
)

// Observer gets the usage of a codebase after each change, in order. It must not call the codebase.
type Observer interface {
	CodebaseChanged(id ID, u Usage)
}

// Options are those of Open.
type Options struct {
	// Dir is the directory of the codebases; Open creates it if it does not exist.
	Dir string
	// Home is the state directory; a linked directory may not be inside it.
	Home string
	// Observer may be nil.
	Observer Observer
	Limits   StorageLimits
	// OwnerOf returns the owner of a codebase, which never changes. It must not call the codebase.
	// Nil: owners have no limits. Errors: NotFound while the owner is not known yet.
	OwnerOf func(ID) (string, error)
}

// Store stores codebases below one directory. It is safe for concurrent use.
type Store struct {
	dir      string // absolute, without symbolic links
	home     string
	observer Observer
	limits   StorageLimits
	ownerOf  func(ID) (string, error)
	handle   *os.File // on dir
	lock     *os.File

	mu       sync.Mutex
	known    map[ID]*Codebase
	accounts map[string]*account // by owner
	flush    *time.Timer         // nil: no change waits to be made durable
	closed   bool

	flushing sync.WaitGroup // the running flush
}

// Open opens the store exclusively and removes codebases that a killed process created or deleted
// in part. Errors: Precondition if another process uses the store, or if other users may write to
// it; Denied, Exhausted and Invalid of the file system.
func Open(o Options) (*Store, error) {
	dir, err := makePrivate(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, home: o.Home, observer: o.Observer, limits: o.Limits, ownerOf: o.OwnerOf, known: map[ID]*Codebase{}, accounts: map[string]*account{}}
	if s.handle, err = os.Open(dir); err != nil {
		return nil, wrapStore("codebases", err)
	}
	if err := s.take(); err != nil {
		s.handle.Close()
		return nil, err
	}
	if err := s.sweep(); err != nil {
		s.letGo()
		return nil, wrapStore("codebases", err)
	}
	return s, nil
}

// makePrivate creates dir if it does not exist, and refuses one that other users may write to.
func makePrivate(dir string) (string, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(dir, &st)
	}
	switch {
	case err != nil:
		return "", wrapStore("codebases", err)
	case st.Uid != uint32(os.Geteuid()):
		return "", errdefs.New(errdefs.Precondition, "codebases %s: the directory belongs to uid %d, not to uid %d", dir, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return "", errdefs.New(errdefs.Precondition, "codebases %s: other users may write (mode %04o): run chmod go-w", dir, st.Mode&0o7777)
	}
	return dir, nil
}

// lockPatience is how long take waits. A child that a killed server has just forked holds the lock
// until it executes its program.
const lockPatience = time.Second

// take locks the store, so that Open never removes another process's uploads.
func (s *Store) take() error {
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return wrapStore("codebases", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for end := time.Now().Add(lockPatience); errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end); {
		time.Sleep(lockPatience / 100)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errdefs.New(errdefs.Precondition, "codebases %s: in use by another server", s.dir)
		}
		return wrapStore("codebases", err)
	}
	s.lock = f
	return nil
}

func (s *Store) letGo() {
	s.handle.Close()
	s.lock.Close()
}

func (s *Store) root() int { return int(s.handle.Fd()) }

// sweep deletes codebases that were created or deleted in part. What it cannot delete stays,
// invisible, for the next time.
func (s *Store) sweep() error {
	names, err := s.names()
	for _, name := range lastFirst(names) {
		if strings.HasPrefix(name, makingPrefix) || strings.HasPrefix(name, gonePrefix) {
			_ = safefs.RemoveTreeAt(s.root(), name)
		}
	}
	return err
}

// lastFirst sorts names so that entries that RemoveTreeAt moved out of a tree come before the tree.
func lastFirst(names []string) []string {
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

func (s *Store) names() ([]string, error) {
	f, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// IDs returns the ids of all codebases, sorted.
func (s *Store) IDs() ([]ID, error) {
	names, err := s.names()
	if err != nil {
		return nil, wrapStore("codebases", err)
	}
	var ids []ID
	for _, name := range names {
		if ID(name).IsValid() {
			ids = append(ids, ID(name))
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Create creates an empty codebase. Errors: Invalid for a malformed ID; Exists; Exhausted; Denied.
func (s *Store) Create(id ID) (*Codebase, error) {
	err := s.appear(id, func(making string) error {
		for _, sub := range []string{filesDir, stagingDir} {
			if err := os.Mkdir(filepath.Join(making, sub), 0o700); err != nil {
				return err
			}
		}
		return os.Chmod(filepath.Join(making, filesDir), dirMode)
	})
	if err != nil {
		return nil, err
	}
	return s.Get(id)
}

// appear creates the codebase's directory in one step, with the content that fill writes.
func (s *Store) appear(id ID, fill func(making string) error) error {
	if !id.IsValid() {
		return errdefs.New(errdefs.Invalid, "codebase %s: malformed id", vpath.Quote(string(id)))
	}
	making := filepath.Join(s.dir, makingPrefix+string(id))
	if err := os.Mkdir(making, 0o700); err != nil {
		return wrapStore("codebase "+string(id), err)
	}
	err := fill(making)
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, making, s.root(), string(id), unix.RENAME_NOREPLACE)
	}
	if err == nil {
		err = safefs.SyncDir(s.dir)
	}
	if err != nil {
		return wrapStore("codebase "+string(id), errors.Join(err, safefs.RemoveTree(making)))
	}
	return nil
}

// keep returns the cached codebase with the ID of c, or caches and returns c.
func (s *Store) keep(c *Codebase) *Codebase {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.known[c.id]; was != nil {
		return was
	}
	s.known[c.id] = c
	return c
}

// Get returns the codebase id. The first time, it empties the staging directory and counts the
// files if necessary. Errors: NotFound, also for a malformed id.
func (s *Store) Get(id ID) (*Codebase, error) {
	if !id.IsValid() {
		return nil, noCodebase(id)
	}
	c := s.keep(&Codebase{store: s, id: id})
	if err := c.load(); err != nil {
		s.forget(c)
		return nil, err
	}
	return c, nil
}

func (s *Store) forget(c *Codebase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[c.id] == c {
		delete(s.known, c.id)
	}
}

// load reads the codebase's state, once.
func (c *Codebase) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.gone:
		return c.absent()
	case c.loaded:
		return nil
	}
	err := c.loadLocked()
	c.loaded = err == nil
	return err
}

func (c *Codebase) loadLocked() error {
	dir, err := safefs.OpenDir(c.store.root(), string(c.id), unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		c.gone = true
		return c.absent()
	}
	if err != nil {
		return wrapStore("codebase "+string(c.id), err)
	}
	defer unix.Close(dir)
	if c.link, err = readLink(dir); c.link != nil || err != nil {
		return err
	}
	if err := c.sweepStaging(dir); err != nil {
		return wrapStore("codebase "+string(c.id), err)
	}
	if err := c.loadUsageLocked(dir); err != nil {
		return err
	}
	if err := c.joinLocked(); err != nil && !errdefs.Is(err, errdefs.NotFound) {
		return err
	}
	return nil
}

// sweepStaging removes the leftovers of interrupted uploads and removals.
func (c *Codebase) sweepStaging(dir int) error {
	staging, err := safefs.Open(dir, stagingDir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(staging), stagingDir)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range lastFirst(names) {
		err = errors.Join(err, safefs.RemoveTreeAt(staging, name))
	}
	return err
}

// doomedFile in a codebase's directory marks that its deletion has begun.
const doomedFile = "doomed"

// Doom marks durably that the deletion of the codebase begins, so that the next server completes or
// cancels it after a crash. Errors: NotFound, Denied, Exhausted.
func (s *Store) Doom(id ID) error {
	if !id.IsValid() {
		return noCodebase(id)
	}
	err := safefs.WriteDurably(filepath.Join(s.dir, string(id)), doomedFile, nil)
	return wrapStore("codebase "+string(id), err)
}

// IsDoomed reports whether the codebase's deletion has begun.
func (s *Store) IsDoomed(id ID) bool {
	_, err := os.Lstat(filepath.Join(s.dir, string(id), doomedFile))
	return id.IsValid() && err == nil
}

// Spare removes the mark of Doom. Errors: Denied.
func (s *Store) Spare(id ID) error {
	err := os.Remove(filepath.Join(s.dir, string(id), doomedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return wrapStore("codebase "+string(id), err)
}

// Delete removes the codebase and its files; for a linked directory, only the link. It succeeds if
// the codebase does not exist, so that an interrupted deletion can be repeated. Errors: Denied,
// Exhausted.
func (s *Store) Delete(id ID) error {
	if !id.IsValid() {
		return nil
	}
	c := s.keep(&Codebase{store: s, id: id})
	gone := gonePrefix + string(id)
	err := c.leave(gone)
	if err == nil {
		s.forget(c)
		err = safefs.RemoveTreeAt(s.root(), gone)
	}
	return wrapStore("codebase "+string(id), err)
}

// leave renames the codebase's directory to gone, in one step.
func (c *Codebase) leave(gone string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := unix.Renameat(c.store.root(), string(c.id), c.store.root(), gone)
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err == nil {
		c.gone = true
		c.settleLocked(nil)
		err = safefs.SyncDir(c.store.dir)
	}
	return err
}

// flushAfter is how long a change may wait until it is made durable. To flush each change alone
// would take some milliseconds of disk time.
const flushAfter = time.Second

func (s *Store) flushSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flush != nil || s.closed {
		return
	}
	s.flushing.Add(1)
	s.flush = time.AfterFunc(flushAfter, func() {
		defer s.flushing.Done()
		s.mu.Lock()
		s.flush = nil
		s.mu.Unlock()
		_ = s.Flush() // the next Flush reports the error
	})
}

// Flush makes all commits durable. Errors: Exhausted, Internal.
func (s *Store) Flush() error {
	return wrapStore("codebases", unix.Syncfs(s.root()))
}

// Close records the usage of the codebases and unlocks the store. Uploads without a commit are
// lost.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	if s.flush != nil && s.flush.Stop() {
		s.flushing.Done()
	}
	var all []*Codebase
	for _, c := range s.known {
		all = append(all, c)
	}
	s.mu.Unlock()
	s.flushing.Wait()
	err := s.Flush()
	for _, c := range all {
		err = errors.Join(err, c.close())
	}
	s.letGo()
	return err
}
