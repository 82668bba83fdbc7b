// Package history makes changes of a source transactions that can be taken back.
//
// Each source has a directory below the state directory's history/, with mode 0700 and never
// reachable from a sandbox. A transaction is a directory in it: a journal of the steps, written
// before the first one, and images/, which takes what the steps replace or remove. The end of the
// journal says that the transaction is committed or rolled back. A process that was killed leaves
// neither: the next one that takes the source's lock rolls it back (Source.Recover).
//
// One process at a time holds a source's lock. Lock order: a source's lock, then the lock and the
// apply lock of a sandbox. Whoever holds the source's lock only tries the others.
package history

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Kind says what a transaction is.
type Kind string

// The kinds.
const (
	Apply Kind = "apply"
	Keep  Kind = "keep" // by rules with apply: keep
	Undo  Kind = "undo" // reverses an apply, a keep or a redo
	Redo  Kind = "redo" // reverses an undo
)

// State says how a transaction ended.
type State string

// The states.
const (
	Pending    State = "pending" // under way, or its process was killed
	Committed  State = "committed"
	RolledBack State = "rolled_back"
)

// Header describes a transaction.
type Header struct {
	Version int       `json:"version"` // of the form of the journal
	ID      string    `json:"id"`
	Seq     int64     `json:"seq"` // in the source's history
	Kind    Kind      `json:"kind"`
	Of      string    `json:"of,omitempty"` // the transaction that this one reverses
	Time    time.Time `json:"time"`
	UID     int       `json:"uid"` // of the user
	// The sandbox of which the changes are. It may be removed since.
	Sandbox record.ID     `json:"sandbox"`
	Name    string        `json:"name"`
	Mount   string        `json:"mount,omitempty"`
	Source  record.Source `json:"source"` // the directory that was changed
	// Elsewhere says that the source is not the sandbox's: the delta kept the changes.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Codebase is the server's codebase that the source is, or "".
	Codebase string `json:"codebase,omitempty"`
	// Branch is the branch of the source's repository that is moved, or nil. The delta then kept
	// the changes.
	Branch *BranchMove `json:"branch,omitempty"`
	// HasRest says that something remains to be done in the sandbox after the commit, see Rest.
	HasRest bool `json:"has_rest,omitempty"`
	// Owner is in the names of temporary files in the source.
	Owner record.ID `json:"owner"`
}

// version is that of the journals that this program writes.
const version = 1

// Entry is a transaction as it is stored.
type Entry struct {
	Header
	Steps []Step // only after Load
	State State
	Count int // of the executed steps that are not implied, if it is committed
	// ReversedBy is the committed transaction that reverses this one, or "".
	ReversedBy string
	// Bytes is what the images take on the disk; 0 also if there are none.
	Bytes int64
	// Expired says that the images were removed, so that the transaction cannot be reversed.
	Expired bool

	dir   string
	whole int64 // bytes of the journal's complete lines, after Load
	moved bool  // the journal says that the branch was moved, after Load
}

// Done returns the steps that were executed.
func (e *Entry) Done() []Step {
	return slices.DeleteFunc(slices.Clone(e.Steps), func(s Step) bool { return s.Left })
}

// Source is the history of a source.
type Source struct {
	home   *record.Home
	source record.Source
	dir    string
	lock   *os.File // held, or nil
}

// historyDir is the directory in the state directory.
func historyDir(h *record.Home) string { return filepath.Join(h.OutermostDir(), "history") }

const lockName = "lock"

// Open opens the history of a source. It makes nothing.
func Open(h *record.Home, source record.Source) *Source {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s", source.Ino, source.Path))
	return &Source{home: h, source: source, dir: filepath.Join(historyDir(h), hex.EncodeToString(sum[:12]))}
}

// All opens the history of each source that has one.
func All(h *record.Home) ([]*Source, error) {
	dirs, err := os.ReadDir(historyDir(h))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, record.HostError("history", err)
	}
	var list []*Source
	for _, d := range dirs {
		s := &Source{home: h, dir: filepath.Join(historyDir(h), d.Name())}
		entries, err := s.Entries()
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			s.source = entries[len(entries)-1].Source
			list = append(list, s)
		}
	}
	return list, nil
}

// Path returns the path of the source.
func (s *Source) Path() record.HostPath { return s.source.Path }

// Lock takes the source's lock. If another process has it, Lock calls waiting once, unless it is
// nil, and waits up to lockPatience. Unlock it after. Errors: Precondition after that time;
// Canceled; those of the host.
func (s *Source) Lock(ctx context.Context, waiting func(holder string)) error {
	f, err := s.openLock()
	if err != nil {
		return err
	}
	if err := s.wait(ctx, f, waiting); err != nil {
		f.Close()
		return err
	}
	s.hold(f)
	return nil
}

// TryLock is Lock, but returns false instead of waiting.
func (s *Source) TryLock() (bool, error) {
	f, err := s.openLock()
	if err != nil {
		return false, err
	}
	err = record.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		s.hold(f)
		return true, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return false, record.HostError("history", err)
}

// openLock opens the lock file, and makes its directory if that is absent.
func (s *Source) openLock() (*os.File, error) {
	for _, dir := range []string{historyDir(s.home), s.dir} {
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			err = safefs.SyncDir(filepath.Dir(dir))
		}
		if err != nil {
			return nil, record.HostError("history", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(s.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, record.HostError("history", err)
	}
	return f, nil
}

// hold notes that this process has the lock of f.
func (s *Source) hold(f *os.File) {
	s.lock = f
	_, _ = f.WriteAt(fmt.Appendf(nil, "%-*s", holderBytes, fmt.Sprintf("process %d", os.Getpid())), 0) // for information only
}

const (
	lockPatience = 30 * time.Second
	lockInterval = 20 * time.Millisecond
	holderBytes  = 32
)

func (s *Source) wait(ctx context.Context, f *os.File, waiting func(string)) error {
	holder := func() string {
		text := make([]byte, holderBytes)
		n, _ := f.ReadAt(text, 0) // for information only
		return cmp.Or(strings.TrimSpace(string(text[:n])), "another process")
	}
	for until := time.Now().Add(lockPatience); ; {
		err := record.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			if err != nil {
				return record.HostError("history", err)
			}
			return nil
		}
		if waiting != nil {
			waiting(holder())
			waiting = nil
		}
		if time.Now().After(until) {
			return errdefs.New(errdefs.Precondition, "source %s: %s is applying or undoing changes there; try again when it has ended", s.source.Path, holder())
		}
		select {
		case <-ctx.Done():
			return errdefs.New(errdefs.Canceled, "source %s: %w", s.source.Path, ctx.Err())
		case <-time.After(lockInterval):
		}
	}
}

// Unlock releases the lock, if it is held. It does nothing for nil.
func (s *Source) Unlock() {
	if s != nil && s.lock != nil {
		_, _ = s.lock.WriteAt(fmt.Appendf(nil, "%*s", holderBytes, ""), 0)
		s.lock.Close()
		s.lock = nil
	}
}

// Entries returns the transactions, the oldest first. It leaves out those that have changed
// nothing. Errors: Precondition for a journal that it cannot read.
func (s *Source) Entries() ([]Entry, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, name := range names {
		e, err := readSummary(filepath.Join(s.dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, errNotReady): // it has just gone, or did not begin
		case err != nil:
			return nil, err
		default:
			list = append(list, *e)
		}
	}
	reversed := map[string]string{}
	for i := range list {
		if list[i].Of != "" && list[i].State == Committed {
			reversed[list[i].Of] = list[i].ID
		}
	}
	for i := range list {
		list[i].ReversedBy = reversed[list[i].ID]
	}
	return list, nil
}

// names returns the names of the transactions' directories, the oldest first.
func (s *Source) names() ([]string, error) {
	dirs, err := os.ReadDir(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, record.HostError("history", err)
	}
	var names []string
	for _, d := range dirs {
		if d.IsDir() {
			names = append(names, d.Name())
		}
	}
	return names, nil
}

// dirName returns the name of a transaction's directory. Names sort by age.
func dirName(seq int64, id string) string { return fmt.Sprintf("%012d-%s", seq, id) }

// nextSeq returns the number of the next transaction.
func (s *Source) nextSeq() (int64, error) {
	names, err := s.names()
	if err != nil || len(names) == 0 {
		return 1, err
	}
	var last int64
	if _, err := fmt.Sscanf(names[len(names)-1], "%d-", &last); err != nil {
		return 0, errdefs.New(errdefs.Precondition, "history %s: %s is no transaction: remove it", s.dir, names[len(names)-1])
	}
	return last + 1, nil
}

// NewID returns the id of a new transaction.
func NewID() string { return string(id.NewTransaction()) }

// IsID reports whether text has the form of an id.
func IsID(text string) bool { return id.Transaction(text).IsValid() }

// remove removes a transaction.
func (s *Source) remove(dir string) error {
	if err := safefs.RemoveTree(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return record.HostError("history", err)
	}
	return nil
}
