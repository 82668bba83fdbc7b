package review

import (
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/keeping"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// setKeeping sets FileDiff.Keeping of the files. What the path on the host marks is not kept in a
// workspace either, where a review does not show that mark.
func setKeeping(w *changes.Work, files []FileDiff, m *marker) {
	if !policy.Keeps(w.Policy.Rules()) {
		return
	}
	list := make([]keeping.Change, len(files))
	for i := range files {
		f := &files[i]
		list[i] = keeping.Change{Change: f.Change, RenamedTo: f.RenamedTo, NotPlaced: f.NotPlaced}
		_, _, list[i].InGit = GitDirOf(m.hostPath(f.Path))
		isDir := record.IsDir(f.Change.Info.Mode)
		if f.Status == changes.Deleted {
			isDir = record.IsDir(f.Change.BaseMode())
		}
		mark := f.Mark
		if !list[i].InGit {
			mark = graver(mark, m.onHost(f.Path, isDir))
		}
		if mark != nil {
			list[i].Mark = mark.Risk.String() + ": " + mark.Reason
		}
	}
	keeping.Decide(w, list)
	for i := range files {
		files[i].Keeping = list[i].Decision
	}
}
