package cli

import (
	"context"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitignored"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// packageDirs are directories with installed packages. Those that scripts remove as a whole, such
// as dist and build, are not among them: a scratch directory is a mount, and cannot be removed.
var packageDirs = []gitignored.Candidate{
	{Name: "node_modules", Makers: []string{"package.json"}},
	{Name: "target", Makers: []string{"Cargo.toml"}, Needed: true}, // Maven's is removed as a whole
	{Name: ".venv"},
	{Name: ".tox"}, // an empty one would change what tools do
}

// addIgnoredScratch makes directories of packages that git ignores scratch directories of a new
// sandbox, unless the caller or the policy file says which it has. It leaves out what cannot be
// one, and says so.
func (o *sandboxOptions) addIgnoredScratch(ctx context.Context, e *env, home *record.Home, b backend.Backend, n *backend.NewSandbox) error {
	if !o.ignoredScratch || len(o.Scratch) > 0 || o.fileScratch != nil {
		return nil
	}
	names := gitignored.In(string(n.Source.Path), packageDirs)
	if len(names) == 0 {
		return nil
	}
	all := strings.Join(names, ", ")
	if n.Limits.DiskBytes > 0 {
		e.say("%s: no scratch directory, because --disk does not bound what these contain; changes there are reviewed", all)
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
	var kept []string
	for _, name := range names {
		if ok, reason := p.WritableBelow(vpath.Root.Child(name)); !ok {
			e.say("%s: no scratch directory, because not everything in it may be written: %s", name, reason)
			continue
		}
		kept = append(kept, name)
	}
	if len(kept) == 0 {
		return nil
	}
	all = strings.Join(kept, ", ")
	if err := launch.ProbeFeature(ctx, launch.Scratch, home.Dir()); err != nil {
		e.say("%s: no scratch directory, because this host cannot make one (agentfense doctor): %v", all, err)
		return nil
	}
	before := n.Scratch
	n.Scratch = kept
	if err := b.Check(*n); err != nil {
		e.say("%s: no scratch directory: %v", all, err)
		n.Scratch = before
		return nil
	}
	e.say("scratch: %s, which git ignores: not reviewed and never applied; --scratch none changes that", all)
	return nil
}
