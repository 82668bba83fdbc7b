package changes

import (
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Rebase makes the directory that is now at the source's path the source, and records that
// in the audit log. The bases of the delta's entries stay, so an apply finds a conflict
// where the new directory has another content. Errors: Precondition while the sandbox runs,
// and if the path now has a symbolic link; those of record.Home.ResolveSource.
func Rebase(s *record.Sandbox) error {
	defer s.Home.MakeRoom()()
	now, err := s.Home.ResolveSource(string(s.Stored.Source.Path))
	switch {
	case err != nil:
		return err
	case now.Path != s.Stored.Source.Path:
		return errdefs.New(errdefs.Precondition, "source %s: the path now has a symbolic link, to %s", s.Stored.Source.Path, now.Path)
	case s.Stored.Source.IsSame(now):
		return nil
	}
	lock, err := s.TryLock(record.PurposeRebase)
	if err != nil {
		return err
	}
	defer lock.Release()
	// Leftovers of a killed apply are in the old directory.
	if err := os.Truncate((&Work{Sandbox: s, ApplyLockFile: record.ApplyLockFile}).ApplyLockPath(), 0); safefs.IgnoreAbsent(err) != nil {
		return record.HostError("sandbox "+s.Name(), err)
	}
	was := s.Stored.Source.Ino
	if err := s.Log(audit.SandboxRebased{Mount: s.Mount(), Source: audit.Text(now.Path), WasInode: was, Inode: now.Ino}); err != nil {
		return err
	}
	return s.Rebase(now)
}
