package local

import (
	"cmp"
	"context"
	"slices"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Sandbox finds a sandbox.
func (b *Backend) Sandbox(_ context.Context, name string) (backend.Sandbox, error) {
	sb, err := b.open(name)
	if err != nil {
		return backend.Sandbox{}, err
	}
	return sandboxOf(sb)
}

// sandboxOf describes a sandbox, without what runs.
func sandboxOf(sb *record.Sandbox) (backend.Sandbox, error) {
	names, err := variableNames(sb)
	return backend.Sandbox{Record: sb.Record(), Variables: names, HostPrograms: true}, err
}

// Check refuses what only a server's sandbox has.
func (b *Backend) Check(n backend.NewSandbox) error {
	if n.CodebaseID != "" {
		return &backend.ServerOnlyError{Flag: "codebase", Value: n.CodebaseID}
	}
	if len(n.ServerSecrets) > 0 {
		return errdefs.New(errdefs.Invalid, "--secret %[1]s: want NAME@HOST, such as %[1]s@api.example.com; without --endpoint no server has the secret", n.ServerSecrets[0])
	}
	if err := published.CheckRights(n.Publish); err != nil {
		return errdefs.New(errdefs.KindOf(err), "--publish %w", err)
	}
	return nil
}

// Create makes a sandbox of a directory.
func (b *Backend) Create(ctx context.Context, n backend.NewSandbox) (backend.Sandbox, error) {
	mounts, err := b.mounts(n, string(n.Source.Path))
	if err != nil {
		return backend.Sandbox{}, err
	}
	uid, err := record.ParseUser(n.User)
	if err != nil {
		return backend.Sandbox{}, err
	}
	dirs, err := b.scratch(n.Scratch, n.Source, n.Rules.Rules)
	if err != nil {
		return backend.Sandbox{}, err
	}
	secrets, err := b.secrets.Complete(ctx, n.Secrets, nil)
	if err != nil {
		return backend.Sandbox{}, err
	}
	repository, err := branch.MakeClean(ctx, b.home, branch.CleanOptions{Source: n.Source, Rules: n.Rules.Rules, Mode: n.Git})
	if err != nil {
		return backend.Sandbox{}, err
	}
	runtime := cmp.Or(n.Runtime, record.RuntimeBwrap)
	r := record.Record{
		Name: n.Name, Source: n.Source, Workspace: string(n.Source.Path),
		Rules: n.Rules.Rules, PolicyNote: n.Rules.Note, Marks: n.Rules.Marks,
		Runtime: runtime, Image: imageOf(n, runtime), UID: uid, Net: n.Net, List: hostlist.List{AllowNet: n.AllowNet}, NetLimits: n.NetLimits, Secrets: secrets, Ports: published.Ports{Publish: n.Publish}, Mounts: mounts, Limits: n.Limits,
		Home: n.Home, Scratch: dirs, Git: n.Git, Ask: n.Ask, Board: n.Board, Contributors: n.Contributors,
	}
	sb, err := b.home.CreateWith(r, func(dir string) error {
		if repository != nil {
			if err := repository(dir); err != nil {
				return err
			}
		}
		if n.Fill == nil {
			return nil
		}
		return n.Fill(b.home, &r, dir)
	})
	if err != nil {
		return backend.Sandbox{}, err
	}
	if len(n.Env) > 0 {
		if err := sb.RememberVariables(n.Env); err != nil {
			return backend.Sandbox{}, err
		}
	}
	return sandboxOf(sb)
}

// scratch reads the scratch directories of a sandbox of the source, and checks its rules.
// Errors: Invalid, Precondition.
func (b *Backend) scratch(texts []string, source record.Source, rules []policy.Rule) ([]scratch.Path, error) {
	paths, err := scratch.ParseAll(texts)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	reserved, err := b.home.Reserved(source)
	if err != nil {
		return nil, err
	}
	p, err := policy.Compile(rules, policy.Options{Reserved: reserved})
	if err != nil {
		return nil, err
	}
	return paths, scratch.CheckPolicy(p, paths)
}

// imageOf is what the runtime shows, "" if it is the host's system.
func imageOf(n backend.NewSandbox, runtime string) string {
	if runtime != record.RuntimeDocker {
		return ""
	}
	return cmp.Or(n.Image, config.Default().Runtime.Docker.DefaultImage)
}

// Reopen finds a sandbox, checks that it is meant, and stores what the flags change.
func (b *Backend) Reopen(ctx context.Context, name string, r backend.Reopening) (backend.Sandbox, error) {
	sb, err := b.home.Open(name)
	if err != nil {
		return backend.Sandbox{}, err
	}
	if has := sb.Record().Git; r.Given("git") && r.New.Git != has {
		return backend.Sandbox{}, errdefs.New(errdefs.Precondition, "sandbox %s: has --git=%s, which cannot be changed; take another --name", name, has)
	}
	if err := settleSource(ctx, sb, r.New.Rebase); err != nil {
		return backend.Sandbox{}, err
	}
	if err := b.checkSource(sb, r); err != nil {
		return backend.Sandbox{}, err
	}
	if err := b.setLimits(ctx, sb, r); err != nil {
		return backend.Sandbox{}, err
	}
	if err := settleMounts(ctx, sb, r.New.Rebase); err != nil {
		return backend.Sandbox{}, err
	}
	return sandboxOf(sb)
}

// checkSource refuses to resume a sandbox on another directory than its own. To be
// somewhere below its source without --dir means that source.
func (b *Backend) checkSource(sb *record.Sandbox, r backend.Reopening) error {
	if r.Dir == "" && r.Here != "" && safefs.IsBelow(r.Here, string(sb.Record().Source.Path)) {
		return nil
	}
	source, err := b.home.ResolveSource(cmp.Or(r.Dir, "."))
	if err != nil {
		return err
	}
	if err := sb.CheckSource(source); err != nil {
		goThere := "go there, "
		if source.Path == sb.Record().Source.Path { // what was there is gone
			goThere = ""
		}
		return errdefs.New(errdefs.KindOf(err), "%w; %stake another --name, or remove it: agentfense rm %s", err, goThere, sb.Name())
	}
	return nil
}

// setting is a flag, and how a record stores what it says; nil for that of mounts.
type setting struct {
	flag  string
	store func(*record.Record)
}

// setLimits stores what flags say of the runtime and the limits. A running sandbox keeps
// those it was started with, so changing them is refused then.
func (b *Backend) setLimits(ctx context.Context, sb *record.Sandbox, r backend.Reopening) error {
	n := r.New
	secrets, err := b.secrets.Complete(ctx, n.Secrets, sb.Record().Secrets)
	if err != nil {
		return err
	}
	dirs, err := scratch.ParseAll(n.Scratch)
	if err == nil && !r.NewRules {
		_, err = b.scratch(n.Scratch, sb.Record().Source, sb.Record().Rules)
	}
	if err != nil {
		return err
	}
	settings := []setting{
		{"runtime", func(to *record.Record) { to.SetRuntime(n.Runtime, imageOf(n, n.Runtime)) }},
		{"image", func(to *record.Record) { to.Image = imageOf(n, n.Runtime) }},
		{"user", func(to *record.Record) { to.UID, _ = record.ParseUser(n.User) }}, // it was checked
		{"net", func(to *record.Record) {
			to.Net, to.AllowNet, to.AllowNetUntil = n.Net, n.AllowNet, nil
			if n.Net != record.NetNamed {
				to.Secrets, to.Publish, to.NetLimits = nil, nil, ""
			}
		}},
		{"allow-net", func(to *record.Record) { to.Net, to.AllowNet, to.AllowNetUntil = n.Net, n.AllowNet, nil }},
		{"net-allow", func(to *record.Record) { to.Net, to.AllowNet, to.AllowNetUntil = n.Net, n.AllowNet, nil }},
		{"net-limit", func(to *record.Record) { to.NetLimits = n.NetLimits }},
		{"secret", func(to *record.Record) { to.Net, to.Secrets = n.Net, secrets }},
		{"publish", func(to *record.Record) { to.Net, to.Publish = n.Net, n.Publish }},
		{"mount", nil},
		{"scratch", func(to *record.Record) { to.Scratch = dirs }},
		{"memory", func(to *record.Record) { to.Limits.MemoryBytes = n.Limits.MemoryBytes }},
		{"cpus", func(to *record.Record) { to.Limits.CPUs = n.Limits.CPUs }},
		{"pids", func(to *record.Record) { to.Limits.PIDs = n.Limits.PIDs }},
		{"disk", func(to *record.Record) { to.Limits.DiskBytes = n.Limits.DiskBytes }},
		{"ask", func(to *record.Record) { to.Ask = n.Ask }},
		{"ask-timeout", func(to *record.Record) { to.Ask = n.Ask }},
		{"ask-hook", func(to *record.Record) { to.Ask = n.Ask }},
		{"board", func(to *record.Record) { to.Board = n.Board }},
		{"home", func(to *record.Record) { to.Home = n.Home }},
		{"timeout", func(to *record.Record) { to.Limits.Timeout = n.Limits.Timeout }},
	}
	if !slices.ContainsFunc(settings, func(s setting) bool { return r.Given(s.flag) }) {
		return nil
	}
	_, held, err := sb.Holder()
	if err != nil {
		return err
	}
	if held {
		return errdefs.New(errdefs.Precondition, "sandbox %s: running; its runtime, user, network, mounts, scratch directories and limits can only be changed while it is stopped", sb.Name())
	}
	mounts, err := b.mounts(n, sb.Record().Workspace)
	if err != nil {
		return err
	}
	if r.Given("mount") {
		release, err := replaceMounts(sb, mounts)
		if err != nil {
			return err
		}
		defer release()
	}
	return sb.Update(func(to *record.Record) error {
		for _, s := range settings {
			switch {
			case !r.Given(s.flag):
			case s.store == nil:
				to.Mounts = mounts
			default:
				s.store(to)
			}
		}
		return nil
	})
}

// IsDirOf says false: there is no codebase.
func (b *Backend) IsDirOf(context.Context, string) func(string) bool {
	return func(string) bool { return false }
}

// Unshown looks at what is mounted in the source.
func (b *Backend) Unshown(_ context.Context, s backend.Sandbox) ([]vpath.Path, error) {
	sb, err := b.open(s.Ref())
	if err != nil {
		return nil, err
	}
	return review.NestedMounts(sb)
}

// LookAtGit looks at the repository of the source.
func (b *Backend) LookAtGit(ctx context.Context, s backend.Sandbox) (found gitview.Tracked, seen func() error, err error) {
	sb, err := b.open(s.Ref())
	if err != nil {
		return found, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	return gitview.LookAtSandbox(ctx, sb)
}
