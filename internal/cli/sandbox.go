package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
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
// up to what the flags say, or a new one, of which it says so.
func (o *sandboxOptions) openOrCreate(e *env, cmd *cobra.Command, home *record.Home) (sb *record.Sandbox, isNew bool, err error) {
	if err := o.check(); err != nil {
		return nil, false, err
	}
	if o.Name == "" {
		sb, err = o.create(e, home)
		return sb, true, err
	}
	if err := record.CheckName(o.Name); err != nil {
		return nil, false, err
	}
	sb, err = o.reopen(e, cmd, home)
	if !errdefs.Is(err, errdefs.NotFound) {
		return sb, false, err
	}
	sb, err = o.create(e, home)
	if errdefs.Is(err, errdefs.Exists) { // another run was quicker
		sb, err = o.reopen(e, cmd, home)
		return sb, false, err
	}
	return sb, true, err
}

// reopen returns a known sandbox, brought up to what the flags say.
func (o *sandboxOptions) reopen(e *env, cmd *cobra.Command, home *record.Home) (*record.Sandbox, error) {
	sb, err := home.Open(o.Name)
	if err != nil {
		return nil, err
	}
	if err := e.settleSource(cmd.Context(), sb, o.Rebase); err != nil {
		return nil, err
	}
	return sb, o.resume(e, cmd, home, sb)
}

// create makes a new sandbox.
func (o *sandboxOptions) create(e *env, home *record.Home) (*record.Sandbox, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	source, err := o.source(home)
	if err == nil {
		err = o.confirmBroad(e, string(source.Path))
	}
	if err != nil {
		return nil, err
	}
	rules, note, err := o.rules(e, home, string(source.Path), local.IsDirBelow(string(source.Path)))
	if err == nil {
		err = o.sayWarnings(e, rules)
	}
	if err != nil {
		return nil, err
	}
	mounts, err := o.mounts(home)
	if err == nil {
		err = e.sayRepository(string(source.Path), rules, mounts, false)
	}
	if err != nil {
		return nil, err
	}
	sb, err := home.Create(record.Record{
		Name: o.Name, Source: source, Workspace: string(source.Path),
		Rules: rules, PolicyNote: note, Marks: o.marks,
		Runtime: o.Runtime, Image: o.image(), UID: o.uid(), Net: o.Net, Mounts: mounts, Limits: o.limits(),
		Home: o.home(),
	})
	if err == nil {
		e.sayTools(sb.Record())
	}
	return sb, err
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

// resume checks that a known sandbox is meant and stores what the flags
// change. Flags of the policy replace the stored policy as a whole.
func (o *sandboxOptions) resume(e *env, cmd *cobra.Command, home *record.Home, sb *record.Sandbox) error {
	if err := o.checkSource(home, sb); err != nil {
		return err
	}
	if changed(cmd, limitFlags) {
		if err := o.resumeLimits(cmd, home, sb); err != nil {
			return err
		}
	}
	if !changed(cmd, policyFlags) {
		return nil
	}
	rules, note, err := o.rules(e, home, string(sb.Record().Source.Path), local.IsDirBelow(string(sb.Record().Source.Path)))
	if err == nil {
		err = o.sayWarnings(e, rules)
	}
	if err != nil {
		return err
	}
	if slices.Equal(sb.Record().Rules, rules) && slices.Equal(sb.Record().Marks, o.marks) {
		return nil
	}
	return sb.ReplaceRules(rules, note, "flags at a resume", func(r *record.Record) { r.Marks = o.marks })
}

// checkSource refuses to resume a sandbox on another directory than its own.
// Standing somewhere below its source without --dir means that source.
func (o *sandboxOptions) checkSource(home *record.Home, sb *record.Sandbox) error {
	if here, err := realPath("."); o.Dir == "" && err == nil && safefs.IsBelow(here, string(sb.Record().Source.Path)) {
		return nil
	}
	source, err := o.source(home)
	if err != nil {
		return err
	}
	if err := sb.CheckSource(source); err != nil {
		goThere := "go there, "
		if source.Path == sb.Record().Source.Path { // what stood there is gone
			goThere = ""
		}
		return errdefs.New(errdefs.KindOf(err), "%w; %stake another --name, or remove it: agentfense rm %s", err, goThere, sb.Name())
	}
	return nil
}

// resumeLimits stores changed limits. A running sandbox keeps those it was
// started with, so changing them is refused then.
func (o *sandboxOptions) resumeLimits(cmd *cobra.Command, home *record.Home, sb *record.Sandbox) error {
	_, held, err := sb.Holder()
	if err != nil {
		return err
	}
	if held {
		return errdefs.New(errdefs.Precondition, "sandbox %s: running; its runtime, user, network, mounts and limits can only be changed while it is stopped", sb.Name())
	}
	mounts, err := o.mounts(home)
	if err != nil {
		return err
	}
	given := cmd.Flags().Changed
	return sb.Update(func(r *record.Record) error {
		want := o.limits()
		for _, c := range []struct {
			flag  string
			store func()
		}{
			{"runtime", func() { r.SetRuntime(o.Runtime, o.image()) }},
			{"image", func() { r.Image = o.image() }},
			{"user", func() { r.UID = o.uid() }},
			{"net", func() { r.Net = o.Net }},
			{"mount", func() { r.Mounts = mounts }},
			{"memory", func() { r.Limits.MemoryBytes = want.MemoryBytes }},
			{"cpus", func() { r.Limits.CPUs = want.CPUs }},
			{"pids", func() { r.Limits.PIDs = want.PIDs }},
			{"disk", func() { r.Limits.DiskBytes = want.DiskBytes }},
			{"home", func() { r.Home = o.home() }},
			{"timeout", func() { r.Limits.Timeout = want.Timeout }},
		} {
			if given(c.flag) {
				c.store()
			}
		}
		return nil
	})
}

// mounts reads --mount SRC[:DST]. Errors: NotFound for a path that is not
// there; Invalid for what must never be shown inside: the state directory,
// sockets, and places the sandbox makes itself.
func (o *sandboxOptions) mounts(home *record.Home) ([]record.Mount, error) {
	var mounts []record.Mount
	for _, m := range o.Mounts {
		source, target, given := strings.Cut(m, ":")
		switch option := target[strings.LastIndexByte(target, ':')+1:]; {
		case option == "rw":
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: \"rw\": every mount is read-only; what a sandbox may write is its source directory (--dir)", m)
		case option == "ro":
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: \"ro\": every mount is read-only; leave the option out", m)
		case source == "" || given && !filepath.IsAbs(target) || strings.Contains(target, ":"):
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: want SRC or SRC:DST with an absolute DST, which has no colon", m)
		}
		real, err := realPath(source)
		if err != nil {
			return nil, errdefs.New(errdefs.NotFound, "--mount %q: %w", m, err)
		}
		if !given {
			if target, err = filepath.Abs(source); err != nil {
				return nil, errdefs.New(errdefs.Invalid, "--mount %q: %w", m, err)
			}
		}
		if err := checkMount(home, real, filepath.Clean(target)); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: %w", m, err)
		}
		mounts = append(mounts, record.Mount{Source: record.HostPath(real), Target: record.HostPath(filepath.Clean(target))})
	}
	return mounts, nil
}

func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// ownPlaces are what a sandbox makes itself; a mount there would undo it.
var ownPlaces = []string{"/proc", "/sys", "/dev", "/run/agentfense"}

func checkMount(home *record.Home, source, target string) error {
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return err
	case !info.IsDir() && !info.Mode().IsRegular():
		return errdefs.New(errdefs.Invalid, "neither a directory nor a file")
	case safefs.IsBelow(source, home.Dir()) || safefs.IsBelow(home.Dir(), source):
		return errdefs.New(errdefs.Invalid, "it would show agentfense's own state directory")
	case target == "/" || slices.ContainsFunc(ownPlaces, func(p string) bool { return safefs.IsBelow(target, p) }):
		return errdefs.New(errdefs.Invalid, "%s is reserved for the sandbox", target)
	case slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/run"}, func(p string) bool { return safefs.IsBelow(source, p) }):
		return errdefs.New(errdefs.Invalid, "%s holds the host's kernel interfaces and sockets", source)
	}
	return nil
}

// command builds what runs inside: arguments, environment, directory. Variables
// that the sandbox remembers come first, so that o's own win.
func (o *commandOptions) command(e *env, sb *record.Sandbox, argv []string) (api.Command, error) {
	e.sayUnset(o.Env)
	remembered, err := sb.Variables()
	if err != nil {
		return api.Command{}, err
	}
	r := sb.Record()
	user := supervise.UserOf(&r)
	v := supervise.Environment{
		Sandbox: sb.Name(), Home: user.Home, User: user.Name, Extra: append(remembered, o.Env...),
		Reachable: reachable(r),
	}
	ownPath := func(variable string) bool { return variable == "PATH" || strings.HasPrefix(variable, "PATH=") }
	if len(argv) > 0 && !slices.ContainsFunc(v.Extra, ownPath) {
		e.sayProgram(r, argv[0])
	}
	e.sayRustup(r, v.Extra)
	return api.Command{Argv: argv, Env: v.Build(e.getenv), Dir: o.workDir(r)}, nil
}

// workDir is --workdir, taken from the workspace if it is relative; else our
// own directory where it lies in the source; else the workspace.
func (o *commandOptions) workDir(r record.Record) string {
	switch {
	case filepath.IsAbs(o.WorkDir):
		return o.WorkDir
	case o.WorkDir != "":
		return filepath.Join(r.Workspace, o.WorkDir)
	}
	here, err := realPath(".")
	if err != nil || !safefs.IsBelow(here, string(r.Source.Path)) {
		return r.Workspace
	}
	return filepath.Join(r.Workspace, strings.TrimPrefix(here, string(r.Source.Path)))
}

// client returns a client of the running sandbox, or nil if it does not run.
func client(ctx context.Context, sb *record.Sandbox) (*api.Client, error) {
	c, err := api.Dial(ctx, sb.Dir())
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil
	}
	return c, err
}
