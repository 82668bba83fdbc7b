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

// Sweep deletes what a crash left half made or half removed. before is called
// first with each such directory. Errors: those of before, and Internal for
// what cannot be deleted; the others are deleted all the same.
func (h *Home) Sweep(before func(dir string) error) error {
	return h.locked(func() error { return h.sweepLocked(before) })
}

// sweepLocked is Sweep. Nobody makes a sandbox while the home is locked; that
// somebody else may be deleting the same tree does no harm.
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
			errs = append(errs, h.forgetLog(ID(id)))
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
	_, err = h.pruneLogs(time.Now(), h.audit.Retention)
	return errors.Join(append(errs, err)...)
}

// logGone writes into the log of the sandbox whose directory is gone now that it
// was destroyed, unless that is there: then not even the record was deleted yet.
// A damaged record names no log, and neither does what a deletion has lifted out
// of a sandbox's tree, where anything may call itself a record.
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

// forgetLog removes the log of a sandbox that never appeared.
func (h *Home) forgetLog(id ID) error {
	if !id.IsValid() {
		return nil
	}
	return audit.Remove(h.AuditPath(id))
}

// Knew reports whether a sandbox of this id is, or was, in this home: its audit
// log stays.
func (h *Home) Knew(id ID) bool {
	if !id.IsValid() {
		return false
	}
	_, err := os.Lstat(h.AuditPath(id))
	return err == nil
}

// IsOwnDir reports whether dir is, or was, a sandbox's directory in this home.
func (h *Home) IsOwnDir(dir string) bool {
	return filepath.Dir(dir) == h.sandboxesDir() && filepath.IsAbs(dir)
}
