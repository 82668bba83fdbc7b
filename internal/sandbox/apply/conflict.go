package apply

import (
	"encoding/hex"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

const changedInSource = "changed in the source since the sandbox saw it"

// nameConflict says what the conflict of a path that was in the source before is about.
func (p *plan) nameConflict(s *step) error {
	now, err := p.work.Stack.SourceInfo(s.Path)
	isGone := errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition)
	if err != nil && !isGone {
		s.conflict(conflict.NoBase, changedInSource)
		return record.UnlessDenied(err)
	}
	was := s.BaseMode() & record.TypeBits
	is := now.Mode & record.TypeBits
	switch {
	case isGone:
		s.conflict(conflict.DeleteModify, "deleted in the source since the sandbox saw it")
	case s.Status == changes.Deleted && is == was:
		s.conflict(conflict.DeleteModify, changedInSource)
	case is != was || s.Status == changes.Retyped || s.Status == changes.Deleted:
		s.conflict(conflict.TypeChange, "%s: it is a %s there now", changedInSource, record.TypeName(now.Mode))
	case is == unix.S_IFREG:
		s.conflict(conflict.Text, changedInSource)
	case is == unix.S_IFDIR:
		s.conflict(conflict.Mode, changedInSource)
	default:
		s.conflict(conflict.Binary, changedInSource)
	}
	return nil
}

// renameTries is how many new files are compared with a deleted one.
const renameTries = 16

// findRename names the conflict of a file that the sandbox has deleted after the new file with its
// content, if there is one: the sandbox has renamed it.
func (p *plan) findRename(s *step) {
	if s.Base == nil || s.Base.SHA256 == nil || s.Base.Size == 0 {
		return
	}
	sum, tries := hex.EncodeToString(s.Base.SHA256), 0
	for _, to := range p.steps {
		isNew := to.Status == changes.Added && to.Info.Mode&record.TypeBits == unix.S_IFREG
		if !isNew || to.Info.Size != s.Base.Size || tries == renameTries {
			continue
		}
		tries++
		if has, err := manifest.SumOfDelta(p.work, to.Path); err == nil && has == sum {
			s.conflict(conflict.RenameEdit, "%s, which renamed it to %s", s.reason, changes.Quote(to.Path))
			return
		}
	}
}
