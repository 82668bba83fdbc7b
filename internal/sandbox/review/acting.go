package review

import (
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
)

// ActsByItself says how a change could act on the host although nobody starts anything by its name,
// "" if it cannot: what git, a shell, an editor or an agent runs or obeys by itself. Executables,
// build scripts and package manifests do not count, nor does git's own state.
func ActsByItself(table *risk.Table, f *FileDiff) string {
	if f.Mark == nil {
		return ""
	}
	mode := f.Change.Info.Mode
	if mode&record.TypeBits == 0 {
		mode = f.Change.BaseMode()
	}
	e, byPath := table.At(f.Path, record.IsDir(mode))
	// The mark that is shown may be a graver one than that of the path.
	byOther := f.Mark.Reason != Executable && (!byPath || f.Mark.Reason != e.Reason)
	switch _, _, inGit := GitDirOf(f.Path); {
	case byPath && e.Runs:
		return e.Reason
	case byOther && f.Mark.Risk == RunsOnHost:
		return f.Mark.Reason
	case inGit:
		return ""
	case byPath && !e.ByName:
		return e.Reason
	case byOther:
		return f.Mark.Reason
	}
	return ""
}
