package apply

import (
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Rebase takes the directory that is at the source's path now for the source, and
// says so in the audit log. What the delta's entries were made of stays recorded:
// an apply finds a conflict wherever the new directory has another content.
// Errors: Precondition while something runs in the sandbox, and if the path leads
// through a symbolic link now; those of record.Home.ResolveSource.
func Rebase(s *record.Sandbox) error {
	defer s.Home.MakeRoom()()
	now, err := s.Home.ResolveSource(string(s.Stored.Source.Path))
	switch {
	case err != nil:
		return err
	case now.Path != s.Stored.Source.Path:
		return errdefs.New(errdefs.Precondition, "source %s: leads through a symbolic link now, to %s", s.Stored.Source.Path, now.Path)
	case s.Stored.Source.IsSame(now):
		return nil
	}
	lock, err := s.TryLock(record.PurposeRebase)
	if err != nil {
		return err
	}
	defer lock.Release()
	// What a killed apply left is in the directory that is gone.
	if err := os.Truncate((&changes.Work{Sandbox: s, ApplyLockFile: record.ApplyLockFile}).ApplyLockPath(), 0); safefs.IgnoreAbsent(err) != nil {
		return record.HostError("sandbox "+s.Name(), err)
	}
	was := s.Stored.Source.Ino
	if err := s.Log(audit.SandboxRebased{Source: audit.Text(now.Path), WasInode: was, Inode: now.Ino}); err != nil {
		return err
	}
	return s.UpdateSource(func(r *record.Record) error {
		r.Source = now
		return nil
	})
}
