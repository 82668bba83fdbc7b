package record

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// Prefixes of the directories of incomplete and of removed sandboxes. No sandbox has such a
// name.
const (
	makingPrefix = ".making-"
	gonePrefix   = ".gone-"
)

// layersDir is the name of the layer stack's directory in the sandbox's.
const layersDir = "layers"

// Create makes a sandbox with the record r. It sets ID, HostUID, CreatedAt and
// SchemaVersion, UID if root runs it and it is nil, and Name if it is empty: to the ID for
// a server's sandbox, else to a random name. The sandbox is not locked. Errors: Invalid for
// the name; Exists; Exhausted; Denied.
func (h *Home) Create(r Record) (*Sandbox, error) { return h.CreateWith(r, nil) }

// CreateWith is Create, and calls fill, unless it is nil, before the sandbox appears. fill gets the
// directory that becomes the sandbox's, and may not lock the home. CreateWith makes the
// names in that directory durable, but not the contents of its files.
func (h *Home) CreateWith(r Record, fill func(dir string) error) (*Sandbox, error) {
	if r.Name != "" {
		if err := CheckName(r.Name); err != nil {
			return nil, err
		}
	}
	r = r.clone()
	r.SchemaVersion, r.ID, r.CreatedAt = SchemaVersion, id.NewSandbox(), time.Now().UTC()
	if r.Name == "" && r.Served != nil {
		r.Name = string(r.ID)
	}
	s := &Sandbox{Home: h, Stored: r}
	if err := h.Locked(func() error { return s.make(fill) }); err != nil {
		return nil, err
	}
	return s, nil
}

// make makes the sandbox's directory. The home is locked.
func (s *Sandbox) make(fill func(dir string) error) error {
	h := s.Home
	// Leftovers that cannot be removed stay until the next time.
	_ = h.sweepLocked(func(string) error { return nil })
	owner := ""
	if s.Stored.Served != nil {
		owner = s.Stored.Served.OwnerID
	}
	if err := h.checkAuditRoom(owner); err != nil {
		return err
	}
	hostUID, err := h.freeUIDLocked()
	if err != nil {
		return err
	}
	s.Stored.setUIDs(hostUID)
	if err := h.placePortsLocked(&s.Stored); err != nil {
		return err
	}
	making := filepath.Join(h.sandboxesDir(), makingPrefix+string(s.Stored.ID))
	// Make the layers' directory too, so that the sandbox can be read before it runs.
	if err := os.MkdirAll(filepath.Join(making, layersDir), 0o700); err != nil {
		return HostError("sandbox", err)
	}
	if err := makeChangesDirs(making, s.Stored.Mounts); err != nil {
		return errors.Join(err, os.RemoveAll(making))
	}
	if fill != nil {
		if err := fill(making); err != nil {
			return errors.Join(err, os.RemoveAll(making))
		}
	}
	for try := 0; ; try++ {
		err := s.appear(making, try)
		if err == nil {
			return nil
		}
		if errdefs.Is(err, errdefs.Exists) && s.Stored.Name == "" && try < 16 {
			continue
		}
		return errors.Join(err, os.RemoveAll(making), s.Home.ForgetLog(s.ID()))
	}
}

// appear renames the directory making to the sandbox's name. It first writes the audit log,
// so that no sandbox exists without a record. The home is locked, so no other process can
// take the name.
func (s *Sandbox) appear(making string, try int) error {
	r := s.Stored
	if r.Name == "" {
		r.Name = id.ProposeName(try)
	}
	if err := r.check(); err != nil {
		return err
	}
	if _, err := os.Lstat(s.Home.sandboxDir(r.Name)); err == nil {
		return errdefs.New(errdefs.Exists, "sandbox %s: exists already", r.Name)
	}
	text, err := r.encode()
	if err != nil {
		return errdefs.New(errdefs.Internal, "sandbox %s: %w", r.Name, err)
	}
	// Make the lock files now, because they must also be available on a full disk.
	for _, name := range []string{lockFile, ApplyLockFile} {
		if err := os.WriteFile(filepath.Join(making, name), nil, 0o600); err != nil {
			return HostError("sandbox "+r.Name, err)
		}
	}
	if err := safefs.WriteDurably(making, recordFile, text); err != nil {
		return HostError("sandbox "+r.Name, err)
	}
	named := Sandbox{Home: s.Home, Stored: r}
	failpoint.At("create sandbox: recorded")
	if err := named.Log(named.createdEvent()); err != nil {
		return err
	}
	failpoint.At("create sandbox: logged")
	err = unix.Renameat2(unix.AT_FDCWD, making, unix.AT_FDCWD, s.Home.sandboxDir(r.Name), unix.RENAME_NOREPLACE)
	if err == nil {
		if err = safefs.SyncDir(s.Home.sandboxesDir()); err != nil {
			err = errors.Join(err, os.Rename(s.Home.sandboxDir(r.Name), making))
		}
	}
	if err != nil {
		return HostError("sandbox "+r.Name, err)
	}
	s.Stored = r
	return nil
}

// Open returns the sandbox with that name or ID. Errors: NotFound; Precondition, naming the
// file, if the record is damaged.
func (h *Home) Open(name string) (*Sandbox, error) {
	if ID(name).IsValid() {
		return h.openID(ID(name))
	}
	if err := CheckName(name); err != nil {
		return nil, NoSandbox(vpath.Escape(name))
	}
	r, err := readRecord(h.sandboxDir(name))
	if err != nil {
		return nil, err
	}
	return &Sandbox{Home: h, Stored: r}, nil
}

// openID first tries the directory of a server's sandbox.
func (h *Home) openID(id ID) (*Sandbox, error) {
	r, err := readRecord(h.sandboxDir(string(id)))
	switch {
	case err == nil:
		return &Sandbox{Home: h, Stored: r}, nil
	case !errdefs.Is(err, errdefs.NotFound):
		return nil, err
	}
	all, err := h.List()
	for _, s := range all {
		if s.ID() == id {
			return s, nil
		}
	}
	return nil, errors.Join(NoSandbox(string(id)), err)
}

// List returns the sandboxes, ordered by name. If a record cannot be read, it still returns
// the others; the error joins one for each such record.
func (h *Home) List() ([]*Sandbox, error) {
	entries, err := os.ReadDir(h.sandboxesDir())
	if err != nil {
		return nil, HostError("sandboxes", err)
	}
	var all []*Sandbox
	var damaged []error
	for _, e := range entries {
		if checkDirName(e.Name()) != nil {
			continue
		}
		s, err := h.Open(e.Name())
		switch {
		case err == nil:
			all = append(all, s)
		case !errdefs.Is(err, errdefs.NotFound): // removed since ReadDir
			damaged = append(damaged, err)
		}
	}
	return all, errors.Join(damaged...)
}

// Update changes the sandbox's record with change, on disk and in s. It keeps ID, Name,
// Source, HostUID and CreatedAt, whatever change does. Errors: those of change; NotFound if
// the sandbox was removed.
func (s *Sandbox) Update(change func(*Record) error) error {
	source := s.Stored.Source
	return s.updateSource(func(r *Record) error {
		err := change(r)
		r.Source = source
		return err
	})
}

// updateSource is Update, but change may also change the source.
func (s *Sandbox) updateSource(change func(*Record) error) error {
	if s.part != nil {
		return errdefs.New(errdefs.Internal, "sandbox %s: the record of a mount cannot be updated", s.Name())
	}
	return s.Home.Locked(func() error {
		r, err := readRecord(s.Dir())
		if err != nil {
			return err
		}
		if r.ID != s.Stored.ID {
			return NoSandbox(s.Name())
		}
		before := r
		r = r.clone()
		if err := change(&r); err != nil {
			return err
		}
		r.SchemaVersion, r.ID, r.Name = SchemaVersion, before.ID, before.Name
		r.HostUID, r.CreatedAt = before.HostUID, before.CreatedAt
		if err := r.NoteEarlier(&before); err != nil {
			return err
		}
		if err := s.Home.placePortsLocked(&r); err != nil {
			return err
		}
		if err := r.check(); err != nil {
			return errdefs.New(errdefs.Precondition, "sandbox %s: %w", r.Name, err)
		}
		if err := makeChangesDirs(s.Dir(), r.Mounts); err != nil {
			return err
		}
		text, err := r.encode()
		if err != nil {
			return errdefs.New(errdefs.Internal, "sandbox %s: %w", r.Name, err)
		}
		if err := safefs.WriteDurably(s.Dir(), recordFile, text); err != nil {
			return HostError("sandbox "+r.Name, err)
		}
		s.Stored = r
		if before.GrantsEnded { // they were dropped when the record was read, and now for good
			return s.Log(r.policyEvent("the time of a grant is over"))
		}
		return nil
	})
}

// Remove removes the sandbox and its delta, also if its record is damaged. The audit log
// stays. Errors: NotFound; Precondition, with a *HeldError cause, while it is locked.
func (h *Home) Remove(name string) error { return h.RemoveIf(name, nil) }

// RemoveIf is Remove, unless check returns an error. The sandbox is locked during check.
// check gets nil if the record is damaged. Errors: as Remove, and those of check.
func (h *Home) RemoveIf(name string, check func(*Sandbox) error) error {
	if ID(name).IsValid() {
		s, err := h.openID(ID(name))
		switch {
		case err == nil:
			name = s.Name()
		case errdefs.Is(err, errdefs.NotFound):
			return err
		} // else the record is damaged, and name may be the ID
	}
	if checkDirName(name) != nil {
		return NoSandbox(vpath.Escape(name))
	}
	defer h.MakeRoom()()
	lock, err := h.tryLock(name, PurposeRemove)
	if err != nil {
		return err
	}
	defer lock.Release()
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	gone := filepath.Join(h.sandboxesDir(), gonePrefix+hex.EncodeToString(b[:]))
	s, openErr := h.Open(name)
	if check != nil {
		if err := check(s); err != nil {
			return err
		}
	}
	err = h.Locked(func() error {
		if err := os.Rename(h.sandboxDir(name), gone); err != nil {
			return HostError("sandbox "+name, err)
		}
		failpoint.At("destroy: gone")
		if openErr != nil {
			return nil // a damaged record has no ID for the log
		}
		return s.Log(audit.SandboxDestroyed{})
	})
	failpoint.At("destroy: logged")
	if errdefs.Is(err, errdefs.Exhausted) {
		return h.removeUnlogged(gone)
	}
	return errors.Join(err, removeTree(gone))
}

// removeUnlogged removes a sandbox's directory if the audit log had no room for the event.
// It first removes the large parts, and then the rest if the log now has room. If not, the
// record stays until Sweep writes the log.
func (h *Home) removeUnlogged(gone string) error {
	for _, large := range []string{layersDir, mountsDir} {
		if err := removeTree(filepath.Join(gone, large)); err != nil {
			return err
		}
	}
	err := h.Locked(func() error { return h.logGone(gone) })
	if errdefs.Is(err, errdefs.Exhausted) {
		return nil
	}
	return errors.Join(err, removeTree(gone))
}

func removeTree(dir string) error {
	if err := safefs.RemoveTree(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return HostError("remove", err)
	}
	return nil
}

// ApplyLockFile is the file of the apply lock in the sandbox's directory.
const ApplyLockFile = "apply.lock"
