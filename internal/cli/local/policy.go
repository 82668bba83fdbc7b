package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Policy tells what the rules of a sandbox are.
func (b *Backend) Policy(_ context.Context, name string) (backend.Policy, error) {
	sb, err := b.open(name)
	if err != nil {
		return backend.Policy{}, err
	}
	p := backend.Policy{Sandbox: backend.Sandbox{Record: sb.Record()}, IsDir: IsDirBelow(string(sb.Record().Source.Path))}
	p.Reserved, err = b.home.Reserved(p.Record.Source)
	return p, err
}

// IsDirBelow tells whether a path of the source is a directory.
func IsDirBelow(source string) func(string) bool {
	return func(pattern string) bool {
		info, err := os.Stat(filepath.Join(source, filepath.FromSlash(pattern)))
		return err == nil && info.IsDir()
	}
}

// SetPolicy replaces the rules of a sandbox. A server's is left to it. Errors: Precondition.
func (b *Backend) SetPolicy(ctx context.Context, name string, r backend.Rules) error {
	sb, err := b.open(name)
	if err != nil {
		return err
	}
	if err := checkUnserved(sb, "set"); err != nil {
		return err
	}
	if _, err := policy.Compile(r.Rules, policy.Options{}); err != nil {
		return err
	}
	if err := sb.ReplaceRules(r.Rules, r.Note, r.Reason, func(rec *record.Record) { rec.Marks = r.Marks }); err != nil {
		return err
	}
	return ifRunning(ctx, sb, func(live *api.Client) error { return live.SetPolicy(ctx, r.Rules) })
}

// checkUnserved refuses to change the policy of a server's sandbox, by a verb of policy.
func checkUnserved(sb *record.Sandbox, verb string) error {
	if sb.Record().Served == nil {
		return nil
	}
	return errdefs.New(errdefs.Precondition, "sandbox %s: managed by a server: run agentfense policy %s %[1]s --endpoint URL …", sb.Name(), verb)
}

// ChangeHosts grants and revokes hosts of a sandbox. A server's is left to it. Errors:
// Precondition, NotFound.
func (b *Backend) ChangeHosts(ctx context.Context, name string, c hostlist.Change) (backend.Sandbox, error) {
	sb, err := b.open(name)
	if err != nil {
		return backend.Sandbox{}, err
	}
	verb := "grant"
	if len(c.Revoke) > 0 {
		verb = "revoke"
	}
	if err := checkUnserved(sb, verb); err != nil {
		return backend.Sandbox{}, err
	}
	if err := sb.ChangeHosts(c); err != nil {
		return backend.Sandbox{}, err
	}
	err = ifRunning(ctx, sb, func(live *api.Client) error { return live.TakeHosts(ctx) })
	return backend.Sandbox{Record: sb.Record()}, err
}

// Explain says what rules say of paths, and looks at the source.
func (b *Backend) Explain(ctx context.Context, name string, extra []policy.Rule, paths []vpath.Path) (x backend.Explained, err error) {
	has, err := b.Policy(ctx, name)
	if err != nil {
		return x, err
	}
	p, err := policy.Compile(append(has.Record.Rules, extra...), policy.Options{Reserved: has.Reserved})
	if err != nil {
		return x, err
	}
	return ExplainIn(ctx, string(has.Record.Source.Path), p, paths)
}

// ExplainMount says what the rules of a mount say of paths, and looks at what is there.
func (b *Backend) ExplainMount(_ context.Context, name, mount string, paths []vpath.Path) (x backend.Explained, err error) {
	sb, err := b.open(name)
	if err != nil {
		return x, err
	}
	view, err := readview.OpenMount(sb, mount)
	if err != nil {
		return x, err
	}
	defer view.Close()
	x.Rules = view.Rules()
	for _, path := range paths {
		entry, err := view.Stat(path)
		x.Paths = append(x.Paths, backend.ExplainedPath{Explanation: view.Explain(path), IsDir: err == nil && record.IsDir(entry.Mode)})
	}
	return x, nil
}

// gitPatience bounds the look at git's history.
const gitPatience = 5 * time.Second

// ExplainIn says what a policy for the directory dir says of paths. Errors: NotFound if
// the directory is absent.
func ExplainIn(ctx context.Context, dir string, p *policy.Policy, paths []vpath.Path) (x backend.Explained, err error) {
	if x.Tracked, err = LookAtGit(ctx, dir, p); err != nil {
		return x, err
	}
	x.Rules = p.Rules()
	for _, path := range paths {
		info, err := os.Lstat(filepath.Join(dir, path.Rel()))
		x.Paths = append(x.Paths, backend.ExplainedPath{Explanation: p.Explain(path), IsDir: err == nil && info.IsDir()})
	}
	return x, nil
}

// LookAtGit looks at the repository in the directory dir for what p hides. Errors:
// NotFound if the directory is absent.
func LookAtGit(ctx context.Context, dir string, p *policy.Policy) (gitview.Tracked, error) {
	source, err := os.Open(dir)
	if err != nil {
		return gitview.Tracked{}, errdefs.New(errdefs.NotFound, "%s: %w", record.HostPath(dir), errors.Unwrap(err))
	}
	defer source.Close()
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	return gitview.LookAtGit(ctx, source, p, func(string) bool { return false }), nil
}
