// Package acting says which changes could act on the host by themselves, although nobody starts
// anything by its name: what git, a shell, an editor or an agent runs or obeys. It decides for an
// apply that no person has reviewed. It does no I/O.
package acting

import (
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// By returns what says how a change could act by itself, "" if it cannot. Executables, build
// scripts and package manifests do not count, nor does git's own state. marks are those of the
// project. Errors: Invalid for a malformed pattern.
func By(marks []policyfile.RiskFlag) (func(*review.FileDiff) string, error) {
	table, err := risk.New(marks)
	if err != nil {
		return nil, err
	}
	return func(f *review.FileDiff) string { return why(table, f) }, nil
}

func why(table *risk.Table, f *review.FileDiff) string {
	if f.Mark == nil {
		return ""
	}
	mode := f.Change.Info.Mode
	if mode&record.TypeBits == 0 {
		mode = f.Change.BaseMode()
	}
	e, byPath := table.At(f.Path, record.IsDir(mode))
	// The mark that is shown may be a graver one than that of the path.
	byOther := f.Mark.Reason != review.Executable && (!byPath || f.Mark.Reason != e.Reason)
	switch _, _, inGit := review.GitDirOf(f.Path); {
	case byPath && e.Runs:
		return e.Reason
	case byOther && f.Mark.Risk == review.RunsOnHost:
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
