package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// hookPreset is the preset of hooks in a project without a policy file: an agent's commands build
// and test, so they must write.
const hookPreset = "development"

// hookAgent is an agent with hooks that can replace a shell command before it runs.
type hookAgent struct {
	name    string
	program string // for people
	// matcher says of which tools the hook is told.
	matcher string
	// userDir is the directory of the settings in the home directory, which the variable moves.
	userDir, variable string
	// userFile is the file of settings there, projectFile that below a project.
	userFile, projectFile string
	// mustAllow says that a replaced command needs a decision, which for the agent does not skip
	// its own questions.
	mustAllow bool
	// after is what the person must do after the installation; "" for nothing.
	after string
}

var hookAgents = []hookAgent{
	{
		name: "claude", program: "Claude Code", matcher: "Bash|Monitor", userDir: ".claude", variable: "CLAUDE_CONFIG_DIR",
		userFile: "settings.json", projectFile: ".claude/settings.local.json",
	},
	{
		name: "codex", program: "Codex", matcher: "^Bash$", userDir: ".codex", variable: "CODEX_HOME",
		userFile: "hooks.json", projectFile: ".codex/hooks.json", mustAllow: true,
		after: "Codex ignores a hook that you have not trusted: start codex, enter /hooks and trust this one. Start it with --sandbox danger-full-access: its own sandbox inside would keep agentfense from starting",
	},
}

type hookOptions struct {
	sandboxOptions
	commandEnv []string
	Allow      bool // of hook claude
}

func (o *hookOptions) register(cmd *cobra.Command) {
	o.sandboxOptions.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "name of the sandbox, new or known (default: made from the directory)")
	f.StringArrayVar(&o.commandEnv, "env", nil, "set the variable `NAME[=VALUE]` inside; without a value, to the agent's value")
}

func newHook(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hook",
		Short: "Run the shell commands of an agent that runs outside in a sandbox",
		Long: `Run each shell command of Claude Code or Codex in a sandbox of the project, while the
agent itself runs outside. hook install adds a hook to the agent's settings. The agent
then calls agentfense before each shell command, and agentfense replaces the command
by one that runs in the sandbox.

What a command changes is applied when it ends, so that the agent sees it. What could
act on this host by itself waits in the sandbox for your review: git hooks, settings
of agents and editors, shell start-up files and the like.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newHookInstall(e), newHookUninstall(e), newHookRun(e))
	for i := range hookAgents {
		cmd.AddCommand(newHookEntry(e, &hookAgents[i]))
	}
	return cmd
}

// newHookEntry is what an agent calls before a shell command.
func newHookEntry(e *env, agent *hookAgent) *cobra.Command {
	var o hookOptions
	cmd := &cobra.Command{
		Use:   agent.name + " [flags]",
		Short: "Answer a hook of " + agent.program,
		Long: `Read the tool call of a PreToolUse hook of ` + agent.program + ` on standard input, and answer
with the same call, in which the shell command runs in a sandbox. The exit code is not
0 if that cannot be, and the command must then not run. Use hook install to install it.`,
		Example: `  agentfense hook ` + agent.name + ` < call.json`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.answer(e, cmd, agent) },
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.Allow, "allow", false, "let the agent run the command without asking you: it runs in a sandbox")
	return cmd
}

// maxHookCall bounds the call that a hook gets.
const maxHookCall = 16 << 20

// hookCall is the part of a hook's input that counts. Sources: code.claude.com/docs/en/hooks,
// developers.openai.com/codex/hooks.
type hookCall struct {
	Event string                     `json:"hook_event_name"`
	Tool  string                     `json:"tool_name"`
	Dir   string                     `json:"cwd"`
	Input map[string]json.RawMessage `json:"tool_input"`
}

// hookAnswer is what a hook prints.
type hookAnswer struct {
	Output hookOutput `json:"hookSpecificOutput"`
}

type hookOutput struct {
	Event    string                     `json:"hookEventName"`
	Decision string                     `json:"permissionDecision,omitempty"`
	Reason   string                     `json:"permissionDecisionReason,omitempty"`
	Updated  map[string]json.RawMessage `json:"updatedInput"`
}

const preToolUse = "PreToolUse"

// answer replaces the command of a call.
func (o *hookOptions) answer(e *env, cmd *cobra.Command, agent *hookAgent) error {
	call, command, err := readHookCall(e.stdin)
	if err != nil {
		return errdefs.New(errdefs.Invalid, "hook %s: %w", agent.name, err)
	}
	if err := e.hereOnly("hook"); err != nil {
		return err
	}
	if o.Dir == "" {
		o.Dir = hookProject(e.getenv, call.Dir)
	}
	flags := hookFlags(cmd)
	err = e.onHost(cmd, func(ctx context.Context, b backend.Backend) error { return o.prepare(ctx, e, cmd, b) })
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "the command was not run: %w", err)
	}
	program, err := hookProgram()
	if err != nil {
		return err
	}
	words := append([]string{program, "hook", "run", "--dir=" + o.Dir}, flags...)
	replaced, err := hookJSON(shellLine(append(words, "--", command)))
	if err != nil {
		return err
	}
	call.Input["command"] = replaced
	out := hookOutput{Event: preToolUse, Updated: call.Input}
	if o.Allow || agent.mustAllow {
		out.Decision, out.Reason = "allow", "it runs in a sandbox of agentfense"
	}
	encoder := json.NewEncoder(e.stdout)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(hookAnswer{out})
}

// readHookCall reads the call of a hook and its shell command. Errors: Invalid.
func readHookCall(r io.Reader) (call hookCall, command string, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxHookCall+1))
	switch {
	case err != nil:
		return call, "", err
	case len(text) > maxHookCall:
		return call, "", errdefs.New(errdefs.Invalid, "the call is larger than %d MiB", maxHookCall>>20)
	}
	if err := json.Unmarshal(text, &call); err != nil {
		return call, "", errdefs.New(errdefs.Invalid, "standard input is not the call of a hook: %w", err)
	}
	if call.Event != preToolUse {
		return call, "", errdefs.New(errdefs.Invalid, "event %s: want %s", vpath.Quote(call.Event), preToolUse)
	}
	if json.Unmarshal(call.Input["command"], &command) != nil || command == "" {
		return call, "", errdefs.New(errdefs.Invalid, "tool %s: its input has no shell command", vpath.Quote(call.Tool))
	}
	if strings.ContainsRune(command, 0) {
		return call, "", errdefs.New(errdefs.Invalid, "tool %s: the command has a NUL byte", vpath.Quote(call.Tool))
	}
	return call, command, nil
}

// hookProject is the project of a call: what the agent says, else the repository of its directory,
// else that directory.
func hookProject(getenv func(string) string, dir string) string {
	if project := getenv("CLAUDE_PROJECT_DIR"); filepath.IsAbs(project) {
		return project
	}
	if dir == "" {
		dir = "."
	}
	real, err := realPath(dir)
	if err != nil {
		return dir
	}
	mine := ownersOf(real)
	for above := real; ; above = filepath.Dir(above) {
		switch {
		case mine(filepath.Join(above, ".git")):
			return above
		case above == filepath.Dir(above):
			return real
		}
	}
}

// prepare refuses what no sandbox can be made of, and names the sandbox.
func (o *hookOptions) prepare(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend) error {
	home, err := e.openHome()
	if err != nil {
		return err
	}
	source, err := o.settle(home)
	if err != nil {
		return err
	}
	if err := checkVariables(o.commandEnv); err != nil {
		return err
	}
	if _, err := o.described(cmd, b, true, o.commandEnv); err != nil {
		return err
	}
	return o.checkRules(ctx, e, cmd, b, home, source)
}

// settle finds the directory, and sets the name and the preset that no flag gives.
func (o *hookOptions) settle(home *record.Home) (record.Source, error) {
	source, err := o.source(home)
	if err != nil {
		return source, err
	}
	if o.Codebase != "" {
		return source, usageError{errdefs.New(errdefs.Invalid, "hook: --codebase: works only on this host: leave it out")}
	}
	if o.Name == "" {
		o.Name = nameFor("hook", string(source.Path))
	}
	if o.Preset == "" && o.Policy == "" {
		dir, err := projectDir(string(source.Path))
		if err != nil {
			return source, err
		}
		if dir == "" {
			o.defaultPreset = hookPreset
		}
	}
	return source, nil
}

// hookFlags are the flags of the command line, for that of hook run.
func hookFlags(cmd *cobra.Command) []string {
	var list []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch value := f.Value.(type) {
		case pflag.SliceValue:
			for _, one := range value.GetSlice() {
				list = append(list, "--"+f.Name+"="+one)
			}
		default:
			if !slices.Contains([]string{"dir", "allow", "scope"}, f.Name) {
				list = append(list, "--"+f.Name+"="+f.Value.String())
			}
		}
	})
	return list
}

// hookProgram is the path by which a shell starts this program: where the PATH has it, if that is
// this file, so that an upgrade does not move it.
func hookProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "find agentfense: %w", err)
	}
	is, err := os.Stat(self)
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "find agentfense: %w", err)
	}
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		path := filepath.Join(dir, "agentfense")
		if info, err := os.Stat(path); err == nil && filepath.IsAbs(path) && os.SameFile(is, info) {
			return path, nil
		}
	}
	return self, nil
}

// shellLine is a line for a shell that runs exactly these words. Each one is between single quotes,
// where no byte but the quote means anything to a POSIX shell, to bash or to zsh.
func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// isBelow reports whether the current directory is dir or lies below it.
func isBelow(dir string) bool {
	here := currentDir()
	return here != "" && safefs.IsBelow(here, dir)
}
