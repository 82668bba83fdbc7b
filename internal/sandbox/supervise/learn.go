package supervise

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// answerLearning begins to record uses, or tells what was recorded.
func (s *supervisor) answerLearning(begin bool) (api.Reply, error) {
	if begin {
		return api.Reply{OK: true}, s.learn()
	}
	used, err := s.used()
	var answer api.Reply
	answer.SetUsed(used)
	return answer, err
}

// learn begins to record how the views are used. What a command used before would be missing.
func (s *supervisor) learn() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next > 0 || s.recorders != nil {
		return errdefs.New(errdefs.Precondition, "sandbox %s: a command has run in it since it was started, so its uses cannot be recorded: stop it first (agentfense stop %[1]s)", s.record.Name)
	}
	views := []*fusefs.FS{s.view}
	for _, m := range s.mounts {
		views = append(views, m.view)
	}
	recorders := make([]*uses.Recorder, len(views))
	for i := range recorders {
		recorders[i] = &uses.Recorder{}
	}
	if err := fusefs.Learn(views, recorders); err != nil {
		return err
	}
	s.recorders = recorders
	return nil
}

// used returns what was recorded of each view.
func (s *supervisor) used() ([]api.Used, error) {
	s.mu.Lock()
	recorders := s.recorders
	s.mu.Unlock()
	if recorders == nil {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: its uses are not recorded", s.record.Name)
	}
	var all []api.Used
	for i, r := range recorders {
		u := api.Used{}
		if i > 0 {
			u.Mount = s.mounts[i-1].name
		}
		u.Uses, u.Omitted = r.All()
		all = append(all, u)
	}
	return all, nil
}
