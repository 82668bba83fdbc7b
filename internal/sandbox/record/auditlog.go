package record

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
)

// BoundAudit sets the bounds of the audit logs. It replaces those that OpenHome read from
// the environment.
func (h *Home) BoundAudit(a config.Audit) { h.audit = a }

// auditFile is one log of the state directory.
type auditFile struct {
	path  string
	bytes int64
	last  time.Time // time of the last write
}

// AuditLogs returns the paths of the audit logs, of removed sandboxes too.
func (h *Home) AuditLogs() ([]string, error) {
	entries, err := os.ReadDir(h.auditDir())
	if err != nil {
		return nil, HostError("audit logs", err)
	}
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), auditSuffix) {
			paths = append(paths, filepath.Join(h.auditDir(), e.Name()))
		}
	}
	return paths, nil
}

// FindLog returns the path of a sandbox's audit log, or of the log of one that was removed, by its
// id. Errors: NotFound.
func (h *Home) FindLog(name string) (string, error) {
	sb, err := h.Open(name)
	if err == nil {
		return sb.AuditPath(), nil
	}
	if !errdefs.Is(err, errdefs.NotFound) {
		return "", err
	}
	if strings.ContainsRune(name, '/') {
		return "", errdefs.New(errdefs.NotFound, "sandbox %s: no such sandbox", vpath.Escape(name))
	}
	path := h.AuditPath(ID(name))
	if _, err := os.Stat(path); err != nil {
		return "", errdefs.New(errdefs.NotFound, "sandbox %s: no such sandbox, and no log of a removed one", vpath.Escape(name))
	}
	return path, nil
}

// auditFiles lists the logs, including those of removed sandboxes.
func (h *Home) auditFiles() ([]auditFile, error) {
	paths, err := h.AuditLogs()
	if err != nil {
		return nil, err
	}
	var files []auditFile
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, HostError("audit logs", err)
		}
		files = append(files, auditFile{path, info.Size(), info.ModTime()})
	}
	return files, nil
}

// auditSize returns the size of the logs of owner, in bytes; "" is the user of the state
// directory. If all logs together have less than enough bytes it returns their sum, without
// reading the owner of each.
func (h *Home) auditSize(owner string, enough int64) (int64, error) {
	files, err := h.auditFiles()
	if err != nil {
		return 0, err
	}
	var all, own int64
	for _, f := range files {
		all += f.bytes
	}
	if all < enough {
		return all, nil
	}
	for _, f := range files {
		of, err := audit.OwnerOf(f.path)
		if err != nil && !errdefs.Is(err, errdefs.NotFound) {
			return 0, err
		}
		if of == owner {
			own += f.bytes
		}
	}
	return own, nil
}

// checkAuditRoom refuses a new log if the logs of owner have reached the budget.
func (h *Home) checkAuditRoom(owner string) error {
	budget := h.audit.MaxBytesPerOwner
	if budget == 0 {
		return nil
	}
	used, err := h.auditSize(owner, budget)
	if err != nil || used < budget {
		return err
	}
	return errdefs.New(errdefs.Exhausted,
		"audit logs: they have %d bytes and their budget is %d; raise audit.max_bytes_per_owner, or delete those of removed sandboxes%s", used, budget, errdefs.Command("audit --prune 24h"))
}

// PruneLogs deletes the logs of sandboxes that were removed longer ago than age,
// and returns how many it deleted.
func (h *Home) PruneLogs(age time.Duration) (n int, err error) {
	err = h.Locked(func() error {
		n, err = h.pruneLogs(time.Now(), max(age, 1))
		return err
	})
	return n, err
}

// pruneLogs is PruneLogs. With age 0 it deletes nothing.
func (h *Home) pruneLogs(now time.Time, age time.Duration) (n int, err error) {
	if age == 0 {
		return 0, nil
	}
	files, err := h.auditFiles()
	errs := []error{err}
	for _, f := range files {
		if now.Sub(f.last) < age {
			continue
		}
		over, err := audit.IsOver(f.path)
		if err == nil && over {
			if err = audit.Remove(f.path); err == nil {
				n++
			}
		}
		if !errdefs.Is(err, errdefs.NotFound) { // removed meanwhile
			errs = append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}

// ArchiveLog moves the records of the sandbox's log into the empty file out. The log
// continues after them. Errors: as audit.Log.Archive.
func (s *Sandbox) ArchiveLog(out *os.File) error {
	log, err := s.openLog()
	if err != nil {
		return err
	}
	return errors.Join(log.Archive(out), log.Close())
}
