package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// LockReason says what a holder does with a sandbox it has locked.
type LockReason string

// The purposes.
const (
	PurposeSupervise LockReason = "supervisor"
	PurposeApply     LockReason = "apply"
	PurposeDiscard   LockReason = "discard"
	PurposeRemove    LockReason = "rm"
	PurposeClear     LockReason = "clearing up"
	PurposeRebase    LockReason = "rebase"
)

// Owner is who holds a sandbox's lock. It is read from the lock file and only
// informs: whether the lock is held the kernel says, so that a process that
// died, or another that got its pid, never counts as the holder.
type Owner struct {
	PID     int        `json:"pid"`
	Purpose LockReason `json:"purpose"`
}

// HeldError is the cause of the Precondition that Lock returns while another
// process holds the sandbox.
type HeldError struct {
	Name  string
	Owner Owner
}

// Error names the holder.
func (e *HeldError) Error() string {
	switch {
	case e.Owner.PID == 0:
		return fmt.Sprintf("sandbox %s: in use by another process", e.Name)
	case e.Owner.Purpose == PurposeSupervise:
		return fmt.Sprintf("sandbox %s: running (its supervisor is process %d)", e.Name, e.Owner.PID)
	}
	return fmt.Sprintf("sandbox %s: in use by process %d (%s)", e.Name, e.Owner.PID, e.Owner.Purpose)
}

// Lock is the right to change a sandbox's delta. It ends with Release or with
// the process.
type Lock struct{ file *os.File }

// TryLock takes the sandbox's lock, or says who has it.
// Errors: Precondition with a *HeldError cause; NotFound if the sandbox was
// removed meanwhile.
func (s *Sandbox) TryLock(purpose LockReason) (*Lock, error) {
	return s.Home.tryLock(s.Stored.Name, purpose)
}

// Lock is TryLock that waits until the holder is done or ctx ends.
func (s *Sandbox) Lock(ctx context.Context, purpose LockReason) (*Lock, error) {
	const interval = 20 * time.Millisecond
	for {
		l, err := s.TryLock(purpose)
		if held := (*HeldError)(nil); !errors.As(err, &held) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(interval):
		}
	}
}

// Holder returns who holds the sandbox's lock, if anybody does.
func (s *Sandbox) Holder() (Owner, bool, error) {
	f, err := os.Open(s.Home.lockPath(s.Stored.Name))
	if errors.Is(err, os.ErrNotExist) {
		return Owner{}, false, nil
	}
	if err != nil {
		return Owner{}, false, HostError("sandbox "+s.Stored.Name, err)
	}
	defer f.Close()
	held, err := isLocked(f)
	if err != nil {
		return Owner{}, false, HostError("sandbox "+s.Stored.Name, err)
	}
	if !held {
		return Owner{}, false, nil
	}
	return readOwner(f), true, nil
}

// HasSupervisor reports whether a supervisor has the sandbox.
func (s *Sandbox) HasSupervisor() bool {
	owner, held, err := s.Holder()
	return err == nil && held && owner.Purpose == PurposeSupervise
}

// isLocked reports whether another has the lock of f. A shared lock on the way
// of one who wants the whole makes that one wait its interval, no more.
func isLocked(f *os.File) (bool, error) {
	err := Flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// lockFile is the lock's name in the sandbox's directory.
const lockFile = "lock"

func (h *Home) lockPath(name string) string { return filepath.Join(h.sandboxDir(name), lockFile) }

func (h *Home) tryLock(name string, purpose LockReason) (*Lock, error) {
	f, err := os.OpenFile(h.lockPath(name), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, noSandbox(name)
	}
	if err != nil {
		return nil, HostError("sandbox "+name, err)
	}
	if err := Flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errdefs.New(errdefs.Precondition, "%w", &HeldError{Name: name, Owner: readOwner(f)})
		}
		return nil, HostError("sandbox "+name, err)
	}
	// Between open and flock the sandbox may have been removed, and another
	// of its name made.
	if !IsAt(f, h.lockPath(name)) {
		f.Close()
		return nil, noSandbox(name)
	}
	l := &Lock{file: f}
	err = l.write(Owner{PID: os.Getpid(), Purpose: purpose})
	if err != nil && purpose == PurposeSupervise { // the others may be what frees a full disk
		l.Release()
		return nil, HostError("sandbox "+name, err)
	}
	return l, nil
}

// ownerBytes is the size of an owner in the lock file. It is written over the one
// before, so that it takes no room on a full disk, and is there as a whole.
const ownerBytes = 96

func (l *Lock) write(o Owner) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = l.file.WriteAt(fmt.Appendf(nil, "%-*s", ownerBytes, text), 0)
	return err
}

// supervised is the bit of the lock file's mode that says that a supervisor holds
// the sandbox, or was killed and nobody has looked since for what it left. A mode
// is changed in place: also where the disk is full, and with no trace of whoever
// has locked the sandbox in between.
const supervised = 0o100

// SetSupervised notes that a supervisor begins to hold the sandbox, or that
// nothing of one is left.
func (l *Lock) SetSupervised(is bool) error {
	mode := uint32(0o600)
	if is {
		mode |= supervised
	}
	if err := unix.Fchmod(int(l.file.Fd()), mode); err != nil {
		return errdefs.New(errdefs.Internal, "lock: %w", err)
	}
	return nil
}

// Supervised reports whether a supervisor holds the sandbox, or held it and did
// not say that nothing of it is left.
func (s *Sandbox) Supervised() bool {
	st, err := os.Stat(s.Home.lockPath(s.Stored.Name))
	return err == nil && st.Mode()&supervised != 0
}

// Release gives the lock up. A second call does nothing, nor does one on nil.
func (l *Lock) Release() {
	if l == nil || l.file == nil {
		return
	}
	_, _ = l.file.WriteAt(fmt.Appendf(nil, "%*s", ownerBytes, ""), 0) // who holds it only informs
	l.file.Close()
	l.file = nil
}

func readOwner(f *os.File) Owner {
	var o Owner
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 256))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return Owner{} // being written
	}
	return o
}

// IsAt reports whether f is the file that path names now.
func IsAt(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(have, named)
}

// Flock is flock(2), which goes on after a signal.
func Flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func noSandbox(name string) error {
	return errdefs.WithReason(errdefs.New(errdefs.NotFound, "sandbox %s: no such sandbox", name), errdefs.SandboxNotFound)
}
