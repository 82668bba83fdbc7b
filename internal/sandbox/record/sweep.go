package record

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// Sweep deletes the incomplete sandboxes that a crash left. It first calls before with each
// such directory. Errors: those of before, and Internal for a directory that it cannot
// delete. After an error Sweep continues with the others.
func (h *Home) Sweep(before func(dir string) error) error {
	return h.Locked(func() error { return h.sweepLocked(before) })
}

// sweepLocked is Sweep with the home locked, so that no sandbox is being made. Another
// process may delete the same tree concurrently.
func (h *Home) sweepLocked(before func(dir string) error) error {
	entries, err := os.ReadDir(h.sandboxesDir())
	if err != nil {
		return HostError("sandboxes", err)
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), makingPrefix) && !strings.HasPrefix(e.Name(), gonePrefix) {
			continue
		}
		dir := filepath.Join(h.sandboxesDir(), e.Name())
		if id, making := strings.CutPrefix(e.Name(), makingPrefix); making {
			errs = append(errs, h.ForgetLog(ID(id)))
		} else {
			errs = append(errs, h.logGone(dir))
		}
		err := before(dir)
		if err == nil {
			if err = safefs.RemoveTree(dir); err != nil {
				err = HostError("remove", err)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, h.pruneNowAndThen())...)
}

// How often sweeps prune the logs, and the file with the time when one last did. A sandbox's start
// must not take longer with each one that was removed.
const (
	pruneInterval = time.Hour
	prunedFile    = "pruned"
)

// pruneNowAndThen prunes the logs unless that was done lately. The home is locked.
func (h *Home) pruneNowAndThen() error {
	marker := filepath.Join(h.dir, prunedFile)
	now := time.Now()
	if info, err := os.Lstat(marker); err == nil && now.Sub(info.ModTime()).Abs() < pruneInterval {
		return nil
	}
	// If there is no room for the marker, the next sweep prunes again.
	if os.WriteFile(marker, nil, 0o600) == nil {
		_ = os.Chtimes(marker, now, now)
	}
	_, err := h.pruneLogs(now, h.audit.Retention)
	return err
}

// logGone records in the audit log that the sandbox in the directory gone was destroyed,
// unless the log says so already. It ignores a damaged record, and a directory that a
// deletion moved out of a sandbox's tree, because a program inside may have made a file
// with a record's name.
func (h *Home) logGone(gone string) error {
	if filepath.Ext(strings.TrimPrefix(filepath.Base(gone), gonePrefix)) != "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(gone, recordFile))
	if err != nil {
		return nil
	}
	r, err := decodeRecord(text)
	if err != nil {
		return nil
	}
	s := Sandbox{Home: h, Stored: r}
	last := audit.Kind("")
	err = audit.Read(s.AuditPath(), func(r audit.Record) error {
		last = r.Event.Kind()
		return nil
	})
	if last == audit.KindSandboxDestroyed {
		return nil
	}
	if err != nil && !errdefs.Is(err, errdefs.NotFound) {
		return err
	}
	return s.Log(audit.SandboxDestroyed{})
}

// ForgetLog removes the log of a sandbox that was never completed.
func (h *Home) ForgetLog(id ID) error {
	if !id.IsValid() {
		return nil
	}
	return audit.Remove(h.AuditPath(id))
}

// Knew reports whether this home has, or had, a sandbox with this id. It looks for the
// audit log, which stays.
func (h *Home) Knew(id ID) bool {
	if !id.IsValid() {
		return false
	}
	_, err := os.Lstat(h.AuditPath(id))
	return err == nil
}

// IsOwnDir reports whether dir is or was the directory of a sandbox in this home.
func (h *Home) IsOwnDir(dir string) bool {
	return filepath.Dir(dir) == h.sandboxesDir() && filepath.IsAbs(dir)
}
