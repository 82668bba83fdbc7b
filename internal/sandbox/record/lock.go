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

// LockReason says why a process has locked a sandbox.
type LockReason string

// The reasons.
const (
	PurposeSupervise LockReason = "supervisor"
	PurposeApply     LockReason = "apply"
	PurposeDiscard   LockReason = "discard"
	PurposeRemove    LockReason = "rm"
	PurposeClear     LockReason = "clearing up"
	PurposeRebase    LockReason = "rebase"
	PurposeSnapshot  LockReason = "snapshot"
	PurposeRestore   LockReason = "restore"
	PurposeMerge     LockReason = "merge"
)

// Owner is the holder of a sandbox's lock, as written in the lock file. It is for
// information only. The kernel decides whether the lock is held, so a process that died, or
// another with its pid, never counts as the holder.
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

// Lock is the right to change a sandbox's delta. Release or the end of the process releases
// it.
type Lock struct{ file *os.File }

// TryLock takes the sandbox's lock, or returns an error with its holder. Errors:
// Precondition with a *HeldError cause; NotFound if the sandbox was removed meanwhile.
func (s *Sandbox) TryLock(purpose LockReason) (*Lock, error) {
	return s.Home.tryLock(s.Stored.Name, purpose)
}

// Lock is TryLock, but waits until the lock is free or ctx ends.
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

// Holder returns the holder of the sandbox's lock, if it is held.
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

// isLocked reports whether another process has the lock of f. Its brief shared lock can
// delay a process that wants the exclusive lock by one interval.
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
		return nil, NoSandbox(name)
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
	// Between open and flock the sandbox may have been removed, and another one made with
	// its name.
	if !IsAt(f, h.lockPath(name)) {
		f.Close()
		return nil, NoSandbox(name)
	}
	l := &Lock{file: f}
	err = l.write(Owner{PID: os.Getpid(), Purpose: purpose})
	if err != nil && purpose == PurposeSupervise { // a full disk must not prevent the others, which may free space
		l.Release()
		return nil, HostError("sandbox "+name, err)
	}
	return l, nil
}

// ownerBytes is the size of an owner in the lock file. Each owner overwrites the previous
// one in one write, so that it needs no disk space.
const ownerBytes = 96

func (l *Lock) write(o Owner) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = l.file.WriteAt(fmt.Appendf(nil, "%-*s", ownerBytes, text), 0)
	return err
}

// supervised is the bit of the lock file's mode that says that a supervisor holds the
// sandbox, or that one was killed and its leftovers are not removed yet. A mode can be
// changed on a full disk, and other holders of the lock do not change it.
const supervised = 0o100

// SetSupervised records that a supervisor holds the sandbox, or that no leftover of one
// exists.
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

// Supervised reports whether a supervisor holds the sandbox, or has held it and may have
// left something.
func (s *Sandbox) Supervised() bool {
	st, err := os.Stat(s.Home.lockPath(s.Stored.Name))
	return err == nil && st.Mode()&supervised != 0
}

// Release releases the lock. It does nothing for nil or on a second call.
func (l *Lock) Release() {
	if l == nil || l.file == nil {
		return
	}
	_, _ = l.file.WriteAt(fmt.Appendf(nil, "%*s", ownerBytes, ""), 0) // the holder is for information only
	l.file.Close()
	l.file = nil
}

func readOwner(f *os.File) Owner {
	var o Owner
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 256))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return Owner{} // incomplete
	}
	return o
}

// IsAt reports whether path still names f.
func IsAt(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(have, named)
}

// Flock is flock(2), repeated after EINTR.
func Flock(f *os.File, how int) error { return FlockFD(int(f.Fd()), how) }

// FlockFD is Flock for a descriptor.
func FlockFD(fd, how int) error {
	for {
		err := unix.Flock(fd, how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// NoSandbox is the error for a name that no sandbox has.
func NoSandbox(name string) error {
	return errdefs.WithReason(errdefs.New(errdefs.NotFound, "sandbox %s: no such sandbox", name), errdefs.SandboxNotFound)
}
