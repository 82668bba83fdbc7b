package supervise

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/overlay"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// mountPoints are the directories of the workspace on which something is mounted.
func (s *supervisor) mountPoints() []vpath.Path {
	points := scratch.At(s.record.Scratch)
	if s.record.Git.IsClean() {
		points = append(slices.Clip(points), cleangit.At)
	}
	return points
}

// compile compiles rules for the view, in which the place of a clean repository always exists.
func (s *supervisor) compile(rules []policy.Rule) (*policy.Policy, error) {
	if s.record.Git.IsClean() {
		rules = append(slices.Clip(rules), cleangit.PlaceRule)
	}
	return policy.Compile(rules, policy.Options{Reserved: s.reserved})
}

// mountGit mounts the clean repository in place of .git, of which the layers show nothing, as
// mountScratch mounts scratch directories.
func (s *supervisor) mountGit(ctx context.Context) error {
	mode := s.record.Git
	if !mode.IsClean() {
		return nil
	}
	store := cleangit.StoreIn(s.box.Dir())
	if err := store.CheckChange(s.record.Rules, mode); err != nil {
		return err
	}
	uid, gid := s.hostIDs()
	c, err := store.Open(uid, gid)
	if err != nil {
		return err
	}
	defer c.Close()
	workspace, _ := s.shown()
	return overlay.MountRepository(ctx, filepath.Join(s.box.Dir(), launch.ViewDir, workspace), c)
}
