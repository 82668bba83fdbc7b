package review

import (
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review/keeping"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// setKeeping sets FileDiff.Keeping of the files.
func setKeeping(w *changes.Work, files []FileDiff) {
	if !policy.Keeps(w.Policy.Rules()) {
		return
	}
	list := make([]keeping.Change, len(files))
	for i := range files {
		f := &files[i]
		list[i] = keeping.Change{Change: f.Change, RenamedTo: f.RenamedTo, NotPlaced: f.NotPlaced}
		_, _, list[i].InGit = GitDirOf(f.Path)
		if f.Mark != nil {
			list[i].Mark = f.Mark.Risk.String() + ": " + f.Mark.Reason
		}
	}
	keeping.Decide(w, list)
	for i := range files {
		files[i].Keeping = list[i].Decision
	}
}
