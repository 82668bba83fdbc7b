package cli

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// addClean gives the new sandbox of an agent a clean repository if git tracks files that the policy
// hides, and says so. If there can be none, it says why. Errors: Canceled.
func (o *sandboxOptions) addClean(ctx context.Context, e *env, home *record.Home, n *backend.NewSandbox) error {
	if !o.cleanIfTracked {
		return nil
	}
	reserved, err := home.Reserved(n.Source)
	if err != nil {
		return err
	}
	p, err := policy.Compile(n.Rules.Rules, policy.Options{Reserved: reserved})
	if err != nil {
		return err
	}
	source, err := n.Source.Open()
	if err != nil {
		return err
	}
	defer source.Close()
	isKnown := func(string) bool { return true } // the index alone
	hidden := gitview.LookAtGit(ctx, source, p, isKnown).Index
	if len(hidden) == 0 {
		return nil
	}
	what := "git tracks " + plural(len(hidden), "file") + " that the policy hides (" + someOf(hidden) + ")"
	mode, err := cleangit.ParseMode("clean")
	if err == nil {
		err = mode.Check(n.Limits.DiskBytes > 0)
	}
	if err == nil {
		err = launch.ProbeFeature(ctx, launch.Scratch, home.Dir())
	}
	if err == nil {
		_, err = cleangit.CacheIn(home.Dir()).Make(ctx, source, mode, p)
	}
	switch {
	case errdefs.Is(err, errdefs.Canceled):
		return err
	case err != nil:
		e.say("%s, and git inside has the repository of the source: %v", what, err)
		return nil
	}
	n.Git = mode
	e.say("%s, so git inside has %s; --git=source changes that", what, cleanText(mode))
	return nil
}
