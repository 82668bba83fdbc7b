package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// The scopes of an installation.
const (
	scopeProject = "project"
	scopeUser    = "user"
)

func newHookInstall(e *env) *cobra.Command {
	var o hookOptions
	var scope string
	cmd := &cobra.Command{
		Use:   "install AGENT [flags]",
		Short: "Add the hook to the settings of claude or codex",
		Long: `Add a hook to the settings of an agent, claude or codex, and show what was written.
The flags that say what the sandbox is are those of run. They become part of the hook.
To change them, install the hook again. Everything else in the settings stays.

Without --preset and --policy, the policy is the project's .agentfense.yaml, else the
preset development. The network is closed.`,
		Example: `  agentfense hook install claude
  agentfense hook install claude --scope user --allow --allow-net registry.npmjs.org
  agentfense hook install codex --scope user --hide '*.sqlite'`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: hookAgentNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			agent, err := hookAgentOf(args[0])
			if err != nil {
				return err
			}
			if err := errors.Join(e.hereOnly("hook"), o.sandboxOptions.check(), checkVariables(o.commandEnv)); err != nil {
				return err
			}
			line, err := o.hookLine(cmd, agent)
			if err != nil {
				return err
			}
			return e.editHooks(agent, scope, o.Dir, line)
		},
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.Allow, "allow", false, "let the agent run commands without asking you: they run in a sandbox")
	scopeFlag(cmd, &scope)
	return cmd
}

func newHookUninstall(e *env) *cobra.Command {
	var scope, dir string
	cmd := &cobra.Command{
		Use:       "uninstall AGENT [flags]",
		Short:     "Remove the hook from the settings of claude or codex",
		Example:   `  agentfense hook uninstall claude --scope user`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: hookAgentNames(),
		RunE: func(_ *cobra.Command, args []string) error {
			agent, err := hookAgentOf(args[0])
			if err != nil {
				return err
			}
			return e.editHooks(agent, scope, dir, "")
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the project (default: the current one)")
	cmd.MarkFlagDirname("dir")
	scopeFlag(cmd, &scope)
	return cmd
}

func scopeFlag(cmd *cobra.Command, scope *string) {
	cmd.Flags().StringVar(scope, "scope", scopeProject, "whose settings: project, those of this project that are not checked in, or user")
	cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{scopeProject, scopeUser}, cobra.ShellCompDirectiveNoFileComp))
}

func hookAgentNames() []string {
	names := make([]string, len(hookAgents))
	for i, a := range hookAgents {
		names[i] = a.name
	}
	return names
}

func hookAgentOf(name string) (*hookAgent, error) {
	i := slices.IndexFunc(hookAgents, func(a hookAgent) bool { return a.name == name })
	if i < 0 {
		return nil, usageError{errdefs.New(errdefs.Invalid, "agent %s: want claude or codex%s", vpath.Quote(name), didYouMean(name, hookAgentNames()))}
	}
	return &hookAgents[i], nil
}

// hookLine is the line of shell that the agent runs before a command. An agent takes other failures
// than the exit code 2 with a reason as a hook that does not matter, and runs the command.
func (o *hookOptions) hookLine(cmd *cobra.Command, agent *hookAgent) (string, error) {
	if o.Policy != "" {
		path, err := filepath.Abs(o.Policy)
		if err == nil {
			err = cmd.Flags().Set("policy", path)
		}
		if err != nil {
			return "", errdefs.New(errdefs.Invalid, "--policy: %w", err)
		}
		if _, _, err := loadPolicyFile(path, ""); err != nil {
			return "", err
		}
	}
	program, err := hookProgram()
	if err != nil {
		return "", err
	}
	words := append([]string{program, "hook", agent.name}, hookFlags(cmd)...)
	if o.Allow {
		words = append(words, "--allow")
	}
	return shellLine(words) + ` || { echo 'agentfense: the hook failed, so the command was not run' >&2; exit 2; }`, nil
}

// isHookOf reports whether a line of shell is one that hookLine has made for the agent.
func isHookOf(agent *hookAgent, line string) bool {
	return strings.HasPrefix(line, "'") && strings.Contains(line, "agentfense' 'hook' '"+agent.name+"'")
}

// maxSettings bounds the settings of an agent.
const maxSettings = jsonkeys.MaxBytes

// editHooks puts the hook into the settings in place of an earlier one. With an empty line it only
// removes that.
func (e *env) editHooks(agent *hookAgent, scope, dir, line string) error {
	path, err := e.hookSettings(agent, scope, dir)
	if err != nil {
		return err
	}
	at := record.HostPath(path).String()
	was, mode, err := readSettings(path)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "settings %s: %w", at, err)
	}
	now, err := withHook(was, agent, line)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "settings %s: %w", at, err)
	}
	if bytes.Equal(was, now) || was == nil && line == "" {
		what := "has this hook already"
		if line == "" {
			what = "has no hook of agentfense"
		}
		e.say("%s %s", at, what)
		return nil
	}
	if err := writeSettings(path, now, mode); err != nil {
		return errdefs.New(safefs.Kind(err), "settings %s: %w", at, err)
	}
	if line == "" {
		e.say("removed the hook from %s", at)
		return nil
	}
	e.say("%s runs this before each shell command, by %s:", agent.program, at)
	if _, err := fmt.Fprintln(e.stdout, vpath.Escape(line)); err != nil {
		return err
	}
	if agent.after != "" {
		e.say("%s", agent.after)
	}
	return nil
}

// hookSettings returns the path of the settings. Those of the user may be a link to another place.
// Errors: Invalid; Denied for a project in which links lead elsewhere.
func (e *env) hookSettings(agent *hookAgent, scope, dir string) (string, error) {
	switch scope {
	case scopeUser:
		of := e.getenv(agent.variable)
		if of == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", errdefs.New(errdefs.NotFound, "home directory: %w", err)
			}
			of = filepath.Join(home, agent.userDir)
		}
		path, err := filepath.Abs(filepath.Join(of, agent.userFile))
		if err != nil {
			return "", errdefs.New(errdefs.Invalid, "%s: %w", agent.variable, err)
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real, nil
		}
		return path, nil
	case scopeProject:
		if dir == "" {
			dir = "."
		}
		source, err := realPath(dir)
		if err != nil {
			return "", errdefs.New(errdefs.NotFound, "--dir: %w", err)
		}
		path := filepath.Join(source, agent.projectFile)
		for _, p := range []string{filepath.Dir(path), path} {
			if info, err := os.Lstat(p); err == nil && info.Mode()&fs.ModeSymlink != 0 {
				return "", errdefs.New(errdefs.Denied, "settings %s: a symbolic link in a project: remove it, or use --scope user", record.HostPath(p))
			}
		}
		return path, nil
	}
	return "", usageError{errdefs.New(errdefs.Invalid, "--scope %s: want project or user%s", vpath.Quote(scope), didYouMean(scope, []string{scopeProject, scopeUser}))}
}

// readSettings returns a file of settings, nil for one that does not exist, and its mode.
func readSettings(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0o600, nil
	case err != nil:
		return nil, 0, errdefs.New(safefs.Kind(err), "%w", err)
	}
	text, err := safefs.ReadRegularIn(filepath.Dir(path), filepath.Base(path), maxSettings)
	if err != nil {
		return nil, 0, errdefs.New(errdefs.Invalid, "%w", err)
	}
	return text, info.Mode().Perm(), nil
}

// writeSettings replaces a file as a whole, and makes its directory.
func writeSettings(path string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return safefs.Replace(path, text, mode)
}

// hookGroup is an entry of hooks.PreToolUse.
type hookGroup struct {
	Matcher string        `json:"matcher"`
	Hooks   []hookCommand `json:"hooks"`
}

type hookCommand struct {
	Type    string `json:"type"`
	Command string `json:"command"`
}

// withHook returns settings with the hook, or without one for an empty line. It keeps what is not
// in hooks.PreToolUse byte for byte. Errors: Invalid for settings that the agent cannot read.
func withHook(settings []byte, agent *hookAgent, line string) ([]byte, error) {
	if settings == nil {
		settings = []byte("{}\n")
	}
	var root, hooks map[string]json.RawMessage
	var groups []json.RawMessage
	if err := json.Unmarshal(settings, &root); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "it is not a JSON object: %w", err)
	}
	if text := root["hooks"]; text != nil {
		if err := json.Unmarshal(text, &hooks); err != nil || hooks == nil {
			return nil, errdefs.New(errdefs.Invalid, "hooks: want an object")
		}
	}
	if text := hooks[preToolUse]; text != nil {
		if err := json.Unmarshal(text, &groups); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "hooks.%s: want a list", preToolUse)
		}
	}
	kept := slices.DeleteFunc(slices.Clone(groups), func(text json.RawMessage) bool {
		var g hookGroup
		return json.Unmarshal(text, &g) == nil && len(g.Hooks) == 1 && isHookOf(agent, g.Hooks[0].Command)
	})
	if line != "" {
		text, err := hookJSON(hookGroup{agent.matcher, []hookCommand{{"command", line}}})
		if err != nil {
			return nil, err
		}
		kept = append(kept, text)
	}
	if slices.EqualFunc(groups, kept, func(a, b json.RawMessage) bool { return bytes.Equal(compact(a), compact(b)) }) {
		return settings, nil
	}
	return setHooks(settings, root, hooks, kept)
}

// setHooks writes the list of hooks.PreToolUse, or removes it with an object that is empty then.
func setHooks(settings []byte, root, hooks map[string]json.RawMessage, groups []json.RawMessage) ([]byte, error) {
	key := "hooks." + preToolUse
	if hooks == nil {
		hooks = map[string]json.RawMessage{}
	}
	if root == nil {
		root = map[string]json.RawMessage{}
	}
	delete(hooks, preToolUse)
	if len(groups) > 0 {
		text, err := hookJSON(groups)
		if err != nil {
			return nil, err
		}
		hooks[preToolUse] = text
	}
	if len(hooks) == 0 {
		key = "hooks"
		delete(root, "hooks")
	} else {
		text, err := hookJSON(hooks)
		if err != nil {
			return nil, err
		}
		root["hooks"] = text
	}
	ours, err := hookJSON(root)
	if err != nil {
		return nil, err
	}
	merged, err := jsonkeys.Merge(settings, settings, ours, []string{key})
	if err == nil && len(merged.Conflicts) > 0 {
		err = errdefs.New(errdefs.Invalid, "%s: cannot be changed", key)
	}
	return merged.Text, err
}

// hookJSON writes a value as people write it: with < and &, not with their numbers.
func hookJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

func compact(text []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}
