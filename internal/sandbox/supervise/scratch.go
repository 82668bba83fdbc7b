package supervise

import (
	"context"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/overlay"
)

// mountScratch mounts the scratch directories on the view, in whatever mount namespace this
// process is, before the isolator binds the view with all that is mounted on it. They go
// with the view.
func (s *supervisor) mountScratch(ctx context.Context) error {
	paths := s.record.Scratch
	if len(paths) == 0 {
		return nil
	}
	if err := scratch.CheckPolicy(s.policy.Load(), paths); err != nil {
		return err
	}
	uid, gid := s.hostIDs()
	store := scratch.StoreIn(s.box.Dir())
	var contents []*scratch.Content
	defer func() {
		for _, c := range contents {
			c.Close()
		}
	}()
	for _, path := range paths {
		c, err := store.Open(path, s.record.Rules, uid, gid)
		if err != nil {
			return err
		}
		contents = append(contents, c)
	}
	workspace, _ := s.shown()
	return overlay.Mount(ctx, filepath.Join(s.box.Dir(), launch.ViewDir, workspace), contents)
}
