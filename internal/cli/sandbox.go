package cli

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func (e *env) openHome() (*record.Home, error) { return record.OpenHome(e.getenv) }

// open returns the home and its sandbox called name.
func (e *env) open(name string) (*record.Home, *record.Sandbox, error) {
	home, err := e.openHome()
	if err != nil {
		return nil, nil, err
	}
	sb, err := home.Open(name)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil, errdefs.New(errdefs.NotFound, "%w%s", err, didYouMean(name, names(home)))
	}
	return home, sb, err
}

func names(home *record.Home) []string {
	all, _ := home.List() // damaged ones have no name worth proposing
	out := make([]string, len(all))
	for i, sb := range all {
		out[i] = sb.Name()
	}
	return out
}

// openOrCreate returns the sandbox that the flags name: a known one, brought
// up to what the flags say, or a new one. All commands of it have the variables env.
func (o *sandboxOptions) openOrCreate(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, env []string) (sb backend.Sandbox, isNew bool, err error) {
	n, err := o.described(cmd, b, true, env)
	if err != nil {
		return sb, false, err
	}
	if o.Name == "" {
		sb, err = o.create(ctx, e, cmd, b, n)
		return sb, true, err
	}
	sb, err = o.reopen(ctx, e, cmd, b, n)
	if !errdefs.Is(err, errdefs.NotFound) {
		return sb, false, err
	}
	sb, err = o.create(ctx, e, cmd, b, n)
	if errdefs.Is(err, errdefs.Exists) { // another run was quicker
		sb, err = o.reopen(ctx, e, cmd, b, n)
		return sb, false, err
	}
	return sb, true, err
}

// described is what the flags say of a sandbox, and whether it is for a command. Errors:
// what no sandbox of b can have.
func (o *sandboxOptions) described(cmd *cobra.Command, b backend.Backend, forCommand bool, env []string) (backend.NewSandbox, error) {
	if o.mountRules == nil {
		o.mountRules = mountRules
	}
	n := backend.NewSandbox{
		Name: o.Name, CodebaseID: o.Codebase, Image: o.Image, User: o.User, Mounts: o.Mounts, MountRules: o.mountRules,
		Home: o.home(), Limits: o.limits(), Env: env, Ask: o.Ask.record(cmd), Board: o.Board,
		ForCommand: forCommand, Rebase: o.Rebase,
	}
	n.Net, n.AllowNet = o.network()
	n.Secrets, n.ServerSecrets, n.Publish = o.secrets(env), o.serverSecrets(), o.published()
	n.NetLimits, _ = hostlist.ParseLimits(o.NetLimits...) // checkNetwork has the error
	if cmd.Flags().Changed("runtime") {
		n.Runtime = o.Runtime
	}
	err := o.check()
	if err == nil {
		n.Scratch, err = o.scratchFlags()
	}
	if err == nil {
		n.Git, err = o.git(cmd, n.Limits)
	}
	if err == nil {
		err = o.checkSecrets(env)
	}
	if err == nil {
		err = b.Check(n)
	}
	if err == nil && o.Name != "" {
		err = record.CheckName(o.Name)
	}
	return n, err
}

// reopen returns a known sandbox, brought up to what the flags say. Flags of the policy
// replace the stored policy as a whole.
func (o *sandboxOptions) reopen(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, n backend.NewSandbox) (sb backend.Sandbox, err error) {
	r := backend.Reopening{New: n, Dir: o.Dir, Here: currentDir(), NewRules: changed(cmd, policyFlags)}
	cmd.Flags().Visit(func(f *pflag.Flag) { r.Flags = append(r.Flags, f.Name) })
	if o.Toolchains && len(o.Mounts) > 0 {
		r.Flags = append(r.Flags, "mount")
	}
	r.Flags = append(r.Flags, o.profileFlags...)
	err = e.rebasing(o.Rebase, func(rebase bool) error {
		r.New.Rebase = rebase
		sb, err = b.Reopen(ctx, o.Name, r)
		return err
	})
	if err != nil || !changed(cmd, policyFlags) {
		return sb, err
	}
	has, err := b.Policy(ctx, sb.Ref())
	if err != nil {
		return sb, err
	}
	home, err := e.openHome()
	if err != nil {
		return sb, err
	}
	rules, err := o.newRules(e, home, string(sb.Record.Source.Path), has.IsDir)
	if err != nil {
		return sb, err
	}
	if err := o.checkFileLimits(cmd, sb.Record); err != nil {
		return sb, err
	}
	rules.Reason = "flags at a resume"
	if !slices.Equal(has.Record.Rules, rules.Rules) || !slices.Equal(has.Record.Marks, rules.Marks) {
		err = b.SetPolicy(ctx, sb.Ref(), rules)
	}
	if err != nil {
		return sb, err
	}
	if err := o.changeToFileNetwork(ctx, e, cmd, b, has.Sandbox, rules.Reason); err != nil {
		return sb, err
	}
	return o.changeToFileScratch(ctx, b, sb, r)
}

// newRules are the rules that the flags say, of which it tells what to know.
func (o *sandboxOptions) newRules(e *env, home *record.Home, source string, isDir func(string) bool) (r backend.Rules, err error) {
	r.Rules, r.Note, err = o.rules(e, home, source, isDir)
	if err == nil {
		err = o.sayWarnings(e, r.Rules)
	}
	r.Marks = o.marks
	return r, err
}

// create makes a new sandbox.
func (o *sandboxOptions) create(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, n backend.NewSandbox) (sb backend.Sandbox, err error) {
	home, err := e.openHome()
	if err != nil {
		return sb, err
	}
	isDir := b.IsDirOf(ctx, o.Codebase)
	if o.Codebase == "" {
		if n.Source, err = o.source(home); err == nil {
			err = o.confirmBroad(e, string(n.Source.Path))
		}
		if err != nil {
			return sb, err
		}
		isDir = local.IsDirBelow(string(n.Source.Path))
	}
	if n.Rules, err = o.newRules(e, home, string(n.Source.Path), isDir); err != nil {
		return sb, err
	}
	given := n.Git
	if err := o.complete(ctx, e, cmd, home, b, &n); err != nil {
		return sb, err
	}
	doing := "uploading"
	if n.Fill != nil {
		doing = "importing"
	}
	p := e.progress(doing)
	n.Uploading = e.uploading(p)
	sb, err = b.Create(ctx, n)
	p.stop()
	if err != nil {
		return sb, err
	}
	if sb.HostPrograms {
		e.sayTools(sb.Record)
		if given.IsClean() {
			e.sayClean(sb)
		}
	} else {
		o.sayNoMarks(e)
	}
	if o.Codebase != "" {
		return sb, nil
	}
	return sb, e.sayRepository(string(n.Source.Path), n.Rules.Rules, sb)
}

// complete adds to a new sandbox with rules what the policy file, the user's rules and the profile
// of an agent say.
func (o *sandboxOptions) complete(ctx context.Context, e *env, cmd *cobra.Command, home *record.Home, b backend.Backend, n *backend.NewSandbox) error {
	if err := o.addFileNetwork(e, cmd, b, n); err != nil {
		return err
	}
	if err := o.addUserHosts(n); err != nil {
		return err
	}
	if err := o.addFileScratch(b, n); err != nil {
		return err
	}
	if err := o.addIgnoredScratch(ctx, e, home, b, n); err != nil {
		return err
	}
	return o.addClean(ctx, e, home, n)
}

// home is the record's.
func (o *sandboxOptions) home() string {
	if o.Home == record.HomePrivate {
		return ""
	}
	return o.Home
}

func (o *sandboxOptions) limits() record.Limits {
	return record.Limits{
		MemoryBytes: int64(o.Memory), CPUs: o.CPUs, PIDs: o.PIDs,
		DiskBytes: int64(o.Disk), Timeout: record.Duration(o.Timeout),
	}
}

func (o *sandboxOptions) source(home *record.Home) (record.Source, error) {
	dir := o.Dir
	if dir == "" {
		dir = "."
	}
	source, err := home.ResolveSource(dir)
	if err == nil && source.Path == "/" {
		return source, errdefs.New(errdefs.Invalid, "source /: the whole root cannot be a workspace; name a directory with --dir")
	}
	return source, err
}

func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// currentDir is the current directory without symbolic links, "" if it is gone.
func currentDir() string {
	here, err := realPath(".")
	if err != nil {
		return ""
	}
	return here
}

// command is what o and argv say is to be run.
func (o *commandOptions) command(argv []string) backend.Command {
	return backend.Command{Argv: argv, Env: o.Env, WorkDir: o.WorkDir, Here: currentDir()}
}
