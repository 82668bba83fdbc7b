// Package board is what the sandboxes of one source share: which paths they have locked, and their
// messages.
//
// A board is a directory of the state directory, which no view shows. It belongs to a source and,
// on a server, to one owner: sandboxes of others have another board. Every change is made under a
// file lock. The table of locks and the messages are appended as lines, so a process that is killed
// leaves the old state or the new one. Nothing is synced to the disk.
//
// A lock belongs to one run of a sandbox. The lock that the supervisor has on its sandbox, which
// the kernel frees when the supervisor ends, tells whether the run goes on. A lock only ever
// narrows what other sandboxes may do. The supervisors enforce locks; this package does not.
package board

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

const (
	boardsDir  = "boards"  // in the state directory
	membersDir = "members" // has a file with the status of each sandbox that runs
	mutexFile  = "lock"
)

// Board is the board of a source. Its methods may be called concurrently, also by several
// processes.
type Board struct {
	home *record.Home
	dir  string
}

// Open returns the board of the sandboxes that r's sandbox shares one with. It makes no file.
func Open(h *record.Home, r *record.Record) *Board {
	owner := ""
	if r.Served != nil {
		owner = r.Served.OwnerID
	}
	return Of(h, r.Source, owner)
}

// Of returns the board of a source. owner is "" for sandboxes that are no server's.
func Of(h *record.Home, source record.Source, owner string) *Board {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", source.Path, source.Ino, owner))
	return &Board{home: h, dir: filepath.Join(h.Dir(), boardsDir, hex.EncodeToString(digest[:16]))}
}

// Locks returns the locks that are valid, and the requests that wait.
func (b *Board) Locks() (Table, error) {
	t, err := b.read()
	if err == nil {
		t.Prune(time.Now(), b.IsAlive)
	}
	return t, err
}

// Update is what Board.Update has done.
type Update struct {
	Table   Table
	Change  *Change  // nil: nothing changed
	Members []string // the sandboxes that are to be informed of a change; some may have ended
}

// Update lets change alter the locks. What has ended is dropped before. If runs is not nil and
// reports true for a holder, Update does not check whether that holder still runs. If change
// returns an error, the locks stay as they were.
func (b *Board) Update(runs func(Holder) bool, change func(*Table) error) (u Update, err error) {
	err = b.locked(func() error {
		f, err := b.openTable()
		if err != nil {
			return err
		}
		defer f.close()
		before := f.table
		u.Table = before.clone()
		u.Table.Prune(time.Now(), func(h Holder) bool { return runs != nil && runs(h) || b.IsAlive(h) })
		if err := change(&u.Table); err != nil {
			return err
		}
		if u.Table.equal(before) {
			return nil
		}
		u.Table.Changes++
		if u.Members, err = b.members(); err != nil {
			return err
		}
		if err := f.store(&u.Table); err != nil {
			return err
		}
		u.Change = changeOf(before, u.Table)
		return nil
	})
	return u, err
}

// Join makes the sandbox of h one that is informed of changes. Its supervisor has its lock.
func (b *Board) Join(h Holder) error {
	return b.locked(func() error { return b.write(filepath.Join(membersDir, h.Name), nil) })
}

// Leave ends what Join began, and all locks of the sandbox: the change is nil if it had none. With
// the last member, a board without messages is removed.
func (b *Board) Leave(h Holder) (Update, error) {
	u, err := b.Update(h.is, func(t *Table) error {
		t.Release(h, func(Lock) bool { return true })
		t.Withdraw(h)
		return nil
	})
	gone := os.Remove(filepath.Join(b.dir, membersDir, h.Name))
	if errors.Is(gone, fs.ErrNotExist) {
		gone = nil
	}
	return u, errors.Join(err, gone, b.removeIfUnused(), b.removeOthers())
}

// Members returns the names of the sandboxes that are to be informed of a change. Some may have
// ended without Leave.
func (b *Board) Members() (members []string, err error) {
	err = b.locked(func() error {
		members, err = b.members()
		return err
	})
	return members, err
}

// members is Members while the board is locked.
func (b *Board) members() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(b.dir, membersDir))
	if err != nil {
		return nil, record.HostError("board", err)
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

// DropEnded drops a member if it no longer runs, and reports whether that is so, or the member has
// left.
func (b *Board) DropEnded(name string) (ended bool, err error) {
	err = b.locked(func() error {
		file := filepath.Join(b.dir, membersDir, name)
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			ended = true
			return nil
		}
		_, runs, err := b.running(name)
		if err != nil || runs {
			return err
		}
		ended = true
		_ = os.Remove(file) // else the next time
		return nil
	})
	return ended, err
}

// running finds a sandbox, and reports whether a supervisor has it.
func (b *Board) running(name string) (sb *record.Sandbox, runs bool, err error) {
	sb, err = b.home.Open(name)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	owner, held, err := sb.Holder()
	return sb, held && owner.Purpose == record.PurposeSupervise, err
}

// IsAlive reports whether the run of a sandbox goes on, or that this cannot be told.
func (b *Board) IsAlive(h Holder) bool {
	sb, err := b.home.Open(h.Name)
	switch {
	case errdefs.Is(err, errdefs.NotFound):
		return false
	case err != nil:
		return true
	case sb.ID() != h.ID:
		return false
	}
	owner, held, err := sb.Holder()
	return err != nil || held && owner.Purpose == record.PurposeSupervise && owner.PID == h.PID
}

// maxTries bounds how often a board is made anew that others remove meanwhile.
const maxTries = 1000

// locked runs do while no other process changes the board.
func (b *Board) locked(do func() error) error {
	for try := 1; ; try++ {
		there, err := b.lockedIn(func() error {
			if err := unix.Mkdir(filepath.Join(b.dir, membersDir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return record.HostError("board", err)
			}
			return do()
		})
		if there {
			return err
		}
		if err = b.makeFiles(); err != nil {
			return record.HostError("board", err)
		}
		if try == maxTries {
			return errdefs.New(errdefs.Unavailable, "board: %s cannot be made: other processes remove it again and again: try again", record.HostPath(b.dir))
		}
	}
}

// makeFiles makes the file of the lock of a board that is not there.
func (b *Board) makeFiles() error {
	err := os.MkdirAll(b.dir, 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(filepath.Join(b.dir, mutexFile), os.O_RDWR|os.O_CREATE, 0o600)
	}
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist): // others remove it meanwhile
		return nil
	}
	return err
}

// lockedIn is locked for a board that is there. It reports whether it was: another process may
// remove the board until we have its lock.
func (b *Board) lockedIn(do func() error) (there bool, err error) {
	fd, err := unix.Open(filepath.Join(b.dir, mutexFile), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, record.HostError("board", err)
	}
	defer unix.Close(fd)
	if err := record.FlockFD(fd, unix.LOCK_EX); err != nil {
		return true, record.HostError("board", err)
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return true, record.HostError("board", err)
	}
	if now.Nlink == 0 {
		return false, nil
	}
	return true, do()
}

// replace replaces a file in one step. The board is locked.
func (b *Board) replace(name string, content []byte) error {
	return b.replaceBy(name+".new", name, content, func() error { return nil })
}

// replaceBy is replace, which first writes the content to the file scratch and then calls before.
func (b *Board) replaceBy(scratch, name string, content []byte, before func() error) error {
	err := b.write(scratch, content)
	if err == nil {
		err = before()
	}
	if err == nil {
		if err = os.Rename(filepath.Join(b.dir, scratch), filepath.Join(b.dir, name)); err == nil {
			return nil
		}
		err = record.HostError("board", err)
	}
	_ = os.Remove(filepath.Join(b.dir, scratch)) // its room is needed where the disk is full
	return err
}

func (b *Board) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(b.dir, name), content, 0o600); err != nil {
		return record.HostError("board", err)
	}
	return nil
}
