package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/learn"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

type profileNewOptions struct {
	runOptions
	From  string
	Force bool
}

// profileNewPreset is the preset of the workspace, for the run and in the profile.
const profileNewPreset = "development"

func newProfileNew(e *env) *cobra.Command {
	var o profileNewOptions
	cmd := &cobra.Command{
		Use:   "new NAME [flags] [-- COMMAND [ARG…]]",
		Short: "Write a profile for an agent from what it uses in one run",
		Long: `Run COMMAND, or the program NAME, once in a sandbox that records what it uses, and
write the profile NAME to your configuration directory. After that, agentfense NAME
runs the agent.

During the run the command can read your home directory, except files with names of
secrets. Its changes there and in the project are discarded at the end. It reaches the
hosts of --allow-net and no others; the profile lists those that it tried, as comments.
Give it a key with --secret or --env, as for run. Which variables it reads cannot be
recorded.

With --from FILE nothing is run: FILE is what run --learn FILE wrote for a run with a
mount named home, and the rules are from the file beside it.`,
		Example: `  agentfense profile new my-agent --allow-net api.example.com -- my-agent --help
  agentfense profile new my-agent --from learned.yaml`,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if at := cmd.ArgsLenAtDash(); at == 1 || at < 0 && len(args) == 1 {
			return nil
		}
		return errdefs.New(errdefs.Invalid, "want one NAME, and the command after --") // explainArgs says it
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runProfileNew(e, cmd, o, args[0], args[1:]) }
	o.sandboxOptions.register(cmd)
	o.commandOptions.register(cmd)
	cmd.Flags().StringVar(&o.From, "from", "", "run nothing, and take what run --learn `FILE` wrote")
	cmd.Flags().BoolVar(&o.Force, "force", false, "replace the profile of this name")
	return cmd
}

func runProfileNew(e *env, cmd *cobra.Command, o profileNewOptions, name string, argv []string) error {
	file, known, err := o.file(e, cmd, name)
	if err != nil {
		return err
	}
	if len(argv) == 0 {
		argv = []string{name}
	}
	if err := profile.CheckCommand(argv[0]); err != nil {
		return errdefs.New(errdefs.Invalid, "command %w", err)
	}
	d := &profile.Draft{Name: name, Command: argv[0], Preset: profileNewPreset}
	if o.From != "" {
		d.Program = e.ownProgram(argv[0])
		if err := readLearned(d, o.From); err != nil {
			return err
		}
		return e.saveDraft(d, file, known)
	}
	if err := checkVariables(o.Env); err != nil {
		return err
	}
	if err := e.hereOnly(cmd.CommandPath()); err != nil {
		return err
	}
	return e.onHost(cmd, func(ctx context.Context, b backend.Backend) error {
		return o.learn(ctx, e, cmd, b, d, argv, func() error { return e.saveDraft(d, file, known) })
	})
}

// file returns the path of the profile, and the text that it replaces, nil for none. Errors:
// Invalid; Exists without --force.
func (o *profileNewOptions) file(e *env, cmd *cobra.Command, name string) (path string, known []byte, err error) {
	dir := profile.Dir(e.getenv)
	if err := profile.CheckName(name); err != nil {
		return "", nil, err
	}
	isVerb := func(c *cobra.Command) bool { return c.Name() == name && c.GroupID != agentGroup }
	switch {
	case slices.ContainsFunc(cmd.Root().Commands(), isVerb):
		return "", nil, errdefs.New(errdefs.Invalid, "profile %s: agentfense has a command of this name; choose another name, and give the program after --", name)
	case dir == "":
		return "", nil, errdefs.New(errdefs.NotFound, "profile %s: you have no home directory to write it to; set HOME", name)
	case !o.Force && slices.Contains(profile.BuiltIn(), name):
		return "", nil, errdefs.New(errdefs.Exists, "profile %s: agentfense has a built-in one (agentfense profile show %[1]s), which a file with `extends: %[1]s` can change; to replace it: --force", name)
	}
	path = filepath.Join(dir, name+".yaml")
	known, err = safefs.ReadNamed(path, profile.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil, nil
	case err != nil:
		return "", nil, errdefs.New(errdefs.Invalid, "profile %s: %w", vpath.Escape(path), err)
	case !o.Force:
		return "", nil, errdefs.New(errdefs.Exists, "profile %s: %s exists; to replace it: --force", name, vpath.Escape(path))
	}
	return path, known, nil
}

// learn runs the command as an agent with a wide profile, and fills the draft with what it used.
func (o *profileNewOptions) learn(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, d *profile.Draft, argv []string, save func() error) error {
	wide := &profile.Profile{
		Name: d.Name, Command: d.Command, Preset: d.Preset, HideSecretNames: true,
		Home: []policy.Rule{{Pattern: "**", Permission: policy.Write, Source: "profile " + d.Name + " (wide, to learn)"}},
	}
	given := len(o.Mounts)
	o.namedNet = !cmd.Flags().Changed("net")
	begin, err := o.useProfile(ctx, e, cmd, b, wide)
	if err != nil {
		return err
	}
	argv = append(begin, argv[1:]...)
	d.Program, d.From = begin[0], "one run of: "+commandLine(append([]string{d.Command}, argv[1:]...))
	for _, m := range o.Mounts[given:] {
		if dir, _, _ := strings.Cut(m, ":"); !strings.Contains(dir, ",name="+homeMount+",") {
			d.Shown = append(d.Shown, dir)
		}
	}
	if !o.namedNet {
		d.Notes = append(d.Notes, "with --net the hosts that it reached are not recorded")
	}
	saved := false
	o.Remove = true
	o.learned = func(ctx context.Context, b backend.Backend, sb backend.Sandbox, used []api.Used, before uint64) error {
		err := e.fillDraft(ctx, b, sb, used, before, d)
		if err == nil {
			err = save()
		}
		saved = err == nil
		return err
	}
	err = runRun(ctx, e, cmd, b, o.runOptions, func(bool) []string { return argv })
	if exit := exitError(0); saved && errors.As(err, &exit) {
		e.say("the command ended with the exit code %d: the profile has what it used until then", int(exit))
		return nil
	}
	return err
}

// saveDraft writes the profile, and says what is next.
func (e *env) saveDraft(d *profile.Draft, file string, known []byte) error {
	text, err := d.Text()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return errdefs.New(safefs.Kind(err), "profile %s: %w", vpath.Escape(file), err)
	}
	if err := replaceFile(file, text, known); err != nil {
		return errdefs.New(safefs.Kind(err), "profile %s: %w", vpath.Escape(file), err)
	}
	e.say("wrote %s: %s, %s, %s refused", vpath.Escape(file), plural(len(d.Rules), "learned rule"), plural(len(d.Hosts), "host"), plural(len(d.Refused), "host"))
	if len(d.Secrets) > 0 {
		e.say("%s with names of secrets stay hidden; the file says how to show one", plural(len(d.Secrets), "used path"))
	}
	e.say("read it, and complete what is a comment: agentfense profile show %[1]s · use: agentfense %[1]s", d.Name)
	return nil
}

// readLearned fills a draft with the policies that --learn file wrote: the hosts of the file, and
// the rules of the mount of the home directory. Errors: Invalid.
func readLearned(d *profile.Draft, file string) error {
	doc, _, err := loadPolicyFile(file, "")
	if err != nil {
		return err
	}
	if doc.Network != nil {
		for _, host := range doc.Network.Texts() {
			d.Hosts = append(d.Hosts, learn.Host{Text: host})
		}
	}
	ext := filepath.Ext(file)
	ofHome := strings.TrimSuffix(file, ext) + "." + homeMount + ext
	text, err := safefs.ReadNamed(ofHome, policyfile.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return errdefs.New(errdefs.Invalid, "--from %s: %s is missing, which --learn writes for a mount of your home directory: agentfense run --learn %[1]s --mount \"$HOME,name=home,mode=development\" -- COMMAND",
			vpath.Escape(file), vpath.Escape(ofHome))
	}
	if err != nil {
		return errdefs.New(errdefs.Invalid, "--from %s: %w", vpath.Escape(ofHome), err)
	}
	home, _, err := parsePolicy(text, ofHome)
	if err != nil {
		return err
	}
	if home.Preset != learn.Preset {
		return errdefs.New(errdefs.Invalid, "--from %s: it was not written by --learn, because it has no `preset: %s`", vpath.Escape(ofHome), learn.Preset)
	}
	lines := strings.Split(string(text), "\n")
	for _, r := range home.Rules {
		d.Rules = append(d.Rules, learn.Rule{Rule: r, Evidence: evidenceAbove(lines, r.Source)})
	}
	d.From = file + " and " + ofHome
	return nil
}

// evidenceAbove returns the comment above a rule with the source FILE:LINE.
func evidenceAbove(lines []string, source string) string {
	at, err := strconv.Atoi(source[strings.LastIndexByte(source, ':')+1:])
	if err == nil && at >= 2 && at <= len(lines) {
		if text, is := strings.CutPrefix(strings.TrimSpace(lines[at-2]), "# "); is {
			return vpath.Escape(text)
		}
	}
	return "of the learned policy"
}
