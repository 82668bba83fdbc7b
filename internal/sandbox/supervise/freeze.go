package supervise

import "github.com/agentfense/agentfense/internal/sandbox/supervise/api"

// answerDelta freezes the deltas, or reports whether that of the workspace has changes.
func (s *supervisor) answerDelta(freeze bool) (api.Reply, error) {
	if freeze {
		layers, err := s.freeze()
		return api.Reply{OK: true, Layers: layers}, err
	}
	changed, err := s.stack.HasChanges()
	return api.Reply{OK: true, Changed: changed}, err
}

// freeze freezes the deltas of the workspace and of the mounts, one after another, and returns the
// frozen layers by the name of the mount, "" for the workspace.
func (s *supervisor) freeze() (map[string]string, error) {
	release, err := s.home.HoldLayers()
	if err != nil {
		return nil, err
	}
	defer release()
	name, err := s.stack.Freeze()
	if err != nil {
		return nil, err
	}
	layers := map[string]string{"": name}
	for _, m := range s.mounts {
		if !m.writable {
			continue
		}
		if layers[m.name], err = m.Stack.Freeze(); err != nil {
			return nil, err
		}
	}
	return layers, nil
}
