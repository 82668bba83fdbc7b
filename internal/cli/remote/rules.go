package remote

import (
	"context"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Policy tells what the rules of a sandbox are. Nothing of a codebase is reserved.
func (b *Backend) Policy(ctx context.Context, name string) (backend.Policy, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return backend.Policy{}, err
	}
	return backend.Policy{Sandbox: sb, IsDir: b.IsDirOf(ctx, sb.Record.Served.CodebaseID)}, nil
}

// IsDirOf tells whether a path is a directory of a codebase. What the server cannot say
// is none, as what is not there.
func (b *Backend) IsDirOf(ctx context.Context, codebase string) func(string) bool {
	return func(pattern string) bool {
		p, err := vpath.Parse(pattern)
		if err != nil || p.IsRoot() {
			return err == nil
		}
		files, err := b.Files(ctx, codebase, p.Dir(), false)
		if err != nil {
			return false
		}
		for _, f := range files {
			if f.Path == p {
				return f.Mode.IsDir()
			}
		}
		return false
	}
}

// ChangeHosts grants and revokes hosts of a sandbox.
func (b *Backend) ChangeHosts(ctx context.Context, name string, c hostlist.Change) (backend.Sandbox, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return backend.Sandbox{}, err
	}
	return b.Client.ChangeHosts(ctx, string(sb.Record.ID), c)
}

// SetPolicy replaces the rules of a sandbox, which also say what an apply may write in
// the directory that was uploaded.
func (b *Backend) SetPolicy(ctx context.Context, name string, r backend.Rules) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	if err := b.Client.SetPolicy(ctx, string(sb.Record.ID), r.Rules); err != nil {
		return err
	}
	u, err := b.uploadOf(sb)
	if err != nil || u == nil {
		return err
	}
	return u.SetRules(r.Rules)
}

// Explain asks the server about each path. It cannot try extra rules.
func (b *Backend) Explain(ctx context.Context, name string, extra []policy.Rule, paths []vpath.Path) (x backend.Explained, err error) {
	if len(extra) > 0 {
		return x, localOnly(strings.TrimPrefix(extra[0].Source, "--"))
	}
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return x, err
	}
	return b.explain(ctx, sb, "", sb.Record.Rules, paths)
}

// ExplainMount says what the rules of a mount say of paths.
func (b *Backend) ExplainMount(ctx context.Context, name, mount string, paths []vpath.Path) (backend.Explained, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return backend.Explained{}, err
	}
	i := slices.IndexFunc(sb.Record.Mounts, func(m record.Mount) bool { return m.Name == mount })
	if i < 0 {
		return backend.Explained{}, errdefs.New(errdefs.NotFound, "sandbox %s: no mount has the name %q", sb.Record.Name, mount)
	}
	return b.explain(ctx, sb, mount, sb.Record.Mounts[i].Rules, paths)
}

// explain asks for each path. rules are those that decide.
func (b *Backend) explain(ctx context.Context, sb backend.Sandbox, mount string, rules []policy.Rule, paths []vpath.Path) (backend.Explained, error) {
	x := backend.Explained{Rules: rules}
	for _, path := range paths {
		found, err := b.Client.Explain(ctx, sb, mount, path, len(rules))
		if err != nil {
			return x, err
		}
		x.Paths = append(x.Paths, backend.ExplainedPath{Explanation: found})
	}
	return x, nil
}
