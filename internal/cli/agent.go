package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// agentGroup is the group of the verbs that run agents.
const agentGroup = "agents"

// newAgents returns a verb for each profile that is built in, and for that of the user which the
// command line names.
func newAgents(e *env) []*cobra.Command {
	names := profile.BuiltIn()
	for _, arg := range e.args {
		if strings.HasPrefix(arg, "-") || slices.Contains(names, arg) || profile.CheckName(arg) != nil {
			continue
		}
		if _, err := os.Lstat(filepath.Join(profile.Dir(e.getenv), arg+".yaml")); err == nil {
			names = append(names, arg)
		}
		break // a profile is named first
	}
	var verbs []*cobra.Command
	for _, name := range names {
		verbs = append(verbs, newAgent(e, name))
	}
	return verbs
}

func newAgent(e *env, name string) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   name + " [flags] [-- ARG…]",
		Short: "Run the agent " + name + " in a sandbox of a directory",
		Long: `Run a coding agent as ` + "`agentfense run`" + ` runs a command, with what its profile says:
the program, the part of your home directory that it needs, its variables, the hosts
that it reaches, and its key, which it does not know. To see the profile:
agentfense profile show ` + name + `

The arguments after the flags go to the agent. All flags of run work, and count where
the profile says otherwise. What the agent changes in the project waits for a review.
In your home directory, its login and its history are kept, and its settings wait for a
review, too: agentfense diff NAME --in home`,
		Example: "  agentfense " + name + "\n  agentfense " + name + " --name fix -- --help",
		GroupID: agentGroup,
		Annotations: map[string]string{
			annotationInside: "true",
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkVariables(o.Env); err != nil {
			return err
		}
		if err := e.hereOnly(cmd.CommandPath()); err != nil {
			return err
		}
		return e.onHost(cmd, func(ctx context.Context, b backend.Backend) error {
			p, err := profile.Load(profile.Dir(e.getenv), name)
			if err != nil {
				return err
			}
			o.agentArgs = args
			argv, err := o.useProfile(ctx, e, cmd, b, p)
			if err != nil {
				return err
			}
			err = runRun(ctx, e, cmd, b, o, func(bool) []string { return append(argv, args...) })
			if _, ended := errors.AsType[exitError](err); err == nil || ended {
				o.login.sayAfter(e, name)
			}
			return err
		})
	}
	o.register(cmd)
	return cmd
}

const (
	homeMount    = "home" // the name of the mount of the home directory
	homeCatchAll = "**"   // the pattern of what a profile does not show of the home directory
)

// useProfile adds to the flags what the profile of an agent says, and returns the beginning of the
// command line inside. Errors: NotFound if the agent is not installed; Invalid.
func (o *runOptions) useProfile(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, p *profile.Profile) ([]string, error) {
	home, err := e.openHome()
	if err != nil {
		return nil, err
	}
	planned, err := o.planned(ctx, cmd, b, home)
	if err != nil {
		return nil, err
	}
	if planned.Runtime == record.RuntimeDocker {
		return nil, usageError{errdefs.New(errdefs.Invalid, "%s: only with --runtime bwrap, where the agent's program of this host is inside", cmd.CommandPath())}
	}
	e.sayProjectProfile(string(planned.Source.Path))
	in := e.lookInside(planned)
	program, err := o.showProgram(e, in, p)
	if err != nil {
		return nil, err
	}
	o.defaultPreset, o.ignoredScratch = p.Preset, p.IgnoredScratch && !asksOnly(o.agentArgs)
	o.cleanIfTracked = !cmd.Flags().Changed("git") && !asksOnly(o.agentArgs)
	if p, err = o.takeLogin(ctx, e, cmd, in, p); err != nil {
		return nil, err
	}
	if err := o.showHome(in, p); err != nil {
		return nil, err
	}
	hint := o.giveHint(e, in, p)
	o.giveVariables(e, p)
	args, err := o.giveNetwork(e, cmd, p)
	if err != nil {
		return nil, err
	}
	o.profileFlags = []string{"mount", "allow-net", "secret", "secret-allow"}
	return slices.Concat([]string{program}, p.Args, hint, args), nil
}

// projectProfiles is where somebody may expect that a project has profiles.
const projectProfiles = ".agentfense/profiles"

// sayProjectProfile says that a project's own profiles do not count.
func (e *env) sayProjectProfile(source string) {
	dir := filepath.Join(source, projectProfiles)
	if files, err := os.ReadDir(dir); err == nil && len(files) > 0 {
		e.say("%s: profiles of a project are not used; to use one, read it and copy it to %s", vpath.Escape(dir), vpath.Escape(profile.Dir(e.getenv)))
	}
}

// showProgram mounts the program of an agent with what lies beside it, and the toolchains. It
// returns the path of the program.
func (o *runOptions) showProgram(e *env, in *inside, p *profile.Profile) (string, error) {
	program := e.ownProgram(p.Command)
	if program == "" {
		how := ""
		if p.Install != "" {
			how = "; to install it: " + p.Install
		}
		return "", errdefs.New(errdefs.NotFound, "%s: there is no program %s on your PATH%s", cmp.Or(p.Title, p.Name), vpath.Quote(p.Command), how)
	}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return "", errdefs.New(errdefs.NotFound, "%s: %w", vpath.Escape(program), err)
	}
	t := e.findToolchains(in)
	for _, text := range t.left {
		e.say("toolchains: %s", text)
	}
	dirs, ofWorkspace := in.toolchainOf(program)
	if !ofWorkspace { // whose links lead to toolchains alone
		dirs = in.partsOf(real)
	}
	if err := in.checkToolchain(dirs, ofWorkspace); err != nil {
		return "", errdefs.New(errdefs.Invalid, "%s: %w", vpath.Escape(program), err)
	}
	for _, dir := range outermost(append(dirs, t.dirs...)) {
		switch {
		case in.isShown(dir):
		case slices.Contains(dirs, dir): // a view would have to read all of a large program each time
			o.Mounts = append(o.Mounts, dir+":"+string(mountspec.Bind))
		default:
			o.Mounts = append(o.Mounts, dir)
		}
	}
	o.Env = addVariables(slices.Clone(o.Env), t.variables...)
	return real, nil
}

// partsOf returns what has to be shown for a program that is a package of npm, lies in a virtual
// environment of Python, or is one file.
func (in *inside) partsOf(real string) []string {
	if in.isShown(real) {
		return nil
	}
	home := in.realHome()
	for dir := filepath.Dir(real); dir != "/" && dir != home; dir = filepath.Dir(dir) {
		switch {
		case filepath.Base(dir) == "node_modules":
			return []string{in.packageOf(real, dir)}
		case has(dir, "pyvenv.cfg"):
			return append([]string{dir}, in.pythonOf(dir)...)
		}
	}
	return in.toolchainPaths(real)
}

func (in *inside) toolchainPaths(program string) []string {
	dirs, _ := in.toolchainOf(program)
	return dirs
}

// packageOf returns the package of a program in a directory node_modules, or that directory if the
// package needs others that are beside it.
func (in *inside) packageOf(real, modules string) string {
	rest := strings.Split(strings.TrimPrefix(real, modules+"/"), "/")
	depth := 1
	if strings.HasPrefix(rest[0], "@") && len(rest) > 1 {
		depth = 2
	}
	dir := filepath.Join(modules, filepath.Join(rest[:depth]...))
	manifest, err := safefs.ReadNamed(filepath.Join(dir, "package.json"), 1<<20)
	needs := err != nil || strings.Contains(string(manifest), `ependencies"`) && !has(dir, "node_modules")
	if needs {
		return modules
	}
	return dir
}

// pythonOf returns what has to be shown of the Python that a virtual environment is made of.
func (in *inside) pythonOf(venv string) []string {
	python, err := filepath.EvalSymlinks(filepath.Join(venv, "bin", "python"))
	if err != nil || in.isShown(python) {
		return nil
	}
	return in.toolchainPaths(python)
}

// showHome mounts the home directory under the rules of a profile.
func (o *runOptions) showHome(in *inside, p *profile.Profile) error {
	if len(p.Home) == 0 {
		return nil
	}
	real, err := filepath.EvalSymlinks(in.home)
	if err != nil {
		return errdefs.New(errdefs.NotFound, "home directory %s: %w", vpath.Escape(in.home), err)
	}
	if safefs.IsBelow(real, in.record.Workspace) {
		return errdefs.New(errdefs.Invalid, "%s is your home directory, or contains it: an agent works in a project; change to its directory, or name it with --dir", vpath.Escape(in.record.Workspace))
	}
	file := mountspec.ProfileSource + p.Name
	mount := real + ",name=" + homeMount + ",policy=" + file
	if s, err := mountspec.Parse(mount); err != nil || s.Source != real {
		return errdefs.New(errdefs.Invalid, "home directory %s: it cannot be shown, because --mount cannot spell its path", vpath.Escape(real))
	}
	o.mountRules = func(path, source string) ([]policy.Rule, error) {
		if path == file {
			return p.HomeRules(), nil
		}
		return mountRules(path, source)
	}
	o.Mounts = append(o.Mounts, mount)
	o.Env = addVariables(slices.Clone(o.Env), "HOME="+real)
	return nil
}

// giveVariables passes on the variables of a profile.
func (o *runOptions) giveVariables(e *env, p *profile.Profile) {
	for _, v := range p.Set {
		value := v.Value
		if own := e.getenv(v.Name); own != "" {
			value = own
		}
		o.Env = addVariables(slices.Clone(o.Env), v.Name+"="+value)
	}
	for _, name := range p.Pass {
		if e.getenv(name) != "" && !p.HasSecret(name) {
			o.Env = addVariables(slices.Clone(o.Env), name)
		}
	}
}

// giveNetwork lets the agent reach its hosts, and use its keys. A key or an address that the caller
// has given by a flag counts. It returns arguments for the agent.
func (o *runOptions) giveNetwork(e *env, cmd *cobra.Command, p *profile.Profile) (args []string, err error) {
	if cmd.Flags().Changed("net") {
		return nil, nil
	}
	o.Allow = append(slices.Clone(o.Allow), p.Hosts...)
	secrets := slices.SortedStableFunc(slices.Values(p.Secrets), func(s, t profile.Secret) int { return cmp.Compare(o.rank(e, s), o.rank(e, t)) })
	key := ""                    // the first that is given
	given := map[string]string{} // keys by the variables with their addresses
	for _, s := range secrets {
		other := given[s.BaseURL]
		if s.Intercept { // a host that is opened gets one key
			other = cmp.Or(other, key)
		}
		if other != "" {
			if o.rank(e, s) == rankVariable {
				e.say("%s: %s is not passed, because %s is set, too", p.Name, s.Name, other)
			}
			continue
		}
		is, more, err := o.giveSecret(e, s)
		if err != nil {
			return nil, err
		}
		if is && s.BaseURL != "" {
			given[s.BaseURL] = s.Name
		}
		if is {
			key = cmp.Or(key, s.Name)
		}
		args = append(args, more...)
	}
	if key == "" && o.login == nil && len(p.Secrets)+len(p.Login) > 0 {
		e.say("%s: there is neither a key (%s) nor a login; set the key, or log in", p.Name, p.KeyNames())
	}
	return args, nil
}

// How a key is given: a flag counts before a variable, and a key before an address alone.
const (
	rankFlag = iota
	rankVariable
	rankAddress
)

func (o *runOptions) rank(e *env, s profile.Secret) int {
	switch {
	case o.isGiven(s):
		return rankFlag
	case e.getenv(s.Name) != "":
		return rankVariable
	}
	return rankAddress
}

// isGiven reports whether a flag gives the agent a key.
func (o *runOptions) isGiven(s profile.Secret) bool {
	isSame := func(text string) bool {
		return text == s.Name || strings.HasPrefix(text, s.Name+"=") || strings.HasPrefix(text, s.Name+"@")
	}
	return slices.ContainsFunc(o.Secrets, isSame) || slices.ContainsFunc(o.Env, isSame)
}

// giveSecret gives the agent a key of the caller, or the address of a model that needs none. It
// reports whether there is one, and returns arguments for the agent.
func (o *runOptions) giveSecret(e *env, s profile.Secret) (given bool, args []string, err error) {
	if o.isGiven(s) {
		return true, nil, nil
	}
	base := ""
	if s.BaseURL != "" {
		base = e.getenv(s.BaseURL)
	}
	value := e.getenv(s.Name)
	isOpen := value != "" && len(value) < secret.MinValue && s.IsLocal(base)
	ofLogin := o.login.sourceOf(s)
	switch {
	case value != "" && !isOpen, ofLogin != "":
		f, err := s.Flags(base)
		if err != nil {
			return false, nil, err
		}
		if ofLogin != "" {
			f.Secret = s.Name + "=" + ofLogin + strings.TrimPrefix(f.Secret, s.Name)
		}
		o.Secrets, o.Limited = append(slices.Clone(o.Secrets), f.Secret), append(slices.Clone(o.Limited), f.Requests...)
		if f.Variable != "" {
			o.Env = addVariables(slices.Clone(o.Env), f.Variable)
		}
		if f.Opened != "" {
			o.Allow, err = hostlist.Opened(o.Allow, f.Opened)
		}
		return true, f.Args, err
	case base != "":
		host, err := s.HostOf(base)
		if err != nil {
			return false, nil, err
		}
		o.Allow = append(slices.Clone(o.Allow), host)
		o.Env = addVariables(slices.Clone(o.Env), s.BaseURL)
		if isOpen {
			o.Env = addVariables(o.Env, s.Name)
			e.say("%s is readable inside: a short word for a model on this host is no secret", s.Name)
		}
		return true, s.ArgsAt(base), nil
	}
	return false, nil, nil
}
