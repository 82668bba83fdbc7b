package agents_test

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness/model"
)

var others = flag.Bool("agents.others", false, "install and test all agents, not only Claude Code and Codex")

// settingsEdit is what an agent does to its settings and its login in the tests below.
type settingsEdit struct{ settings, login string }

// command is a script that makes the edit, behind look.
func (e settingsEdit) command() string {
	c := look + `printf '%s' '{"mcpServers": {"x": {"command": "sh"}}}' > ~/` + e.settings
	if e.login != "" {
		c += `; printf '%s' '{"access_token": "new"}' > ~/` + e.login
	}
	return c
}

// otherAgent is how an agent is run in a test.
type otherAgent struct {
	name  string
	files map[string]string // of the home directory
	edit  settingsEdit
	// steps are the model's: the command runs in the agent's shell, file is app.txt.
	steps func(command, file string) []model.Step
	env   func(url string) string
	args  []string // for the first prompt, and again, to go on with the conversation
	again []string
	hint  string // what the model is told of the sandbox
	// forgets is set if the conversations are those of a sandbox alone.
	forgets bool
}

var otherAgents = []otherAgent{
	{
		name: "gemini",
		files: map[string]string{
			".gemini/settings.json":    `{"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}}}`,
			".gemini/oauth_creds.json": `{"access_token": "old"}`,
		},
		edit: settingsEdit{settings: ".gemini/settings.json", login: ".gemini/oauth_creds.json"},
		steps: func(command, file string) []model.Step {
			return []model.Step{
				{Tool: "run_shell_command", Input: map[string]any{"command": command, "description": "look"}},
				{Tool: "read_file", Input: map[string]any{"file_path": file}},
				{Tool: "replace", Input: map[string]any{"file_path": file, "old_string": "one", "new_string": "two", "instruction": "count"}},
			}
		},
		env:   func(url string) string { return "GEMINI_API_KEY=" + key + " GOOGLE_GEMINI_BASE_URL=" + url },
		args:  []string{"-m", "gemini-2.5-pro", "--approval-mode", "yolo", "-p", "work"},
		again: []string{"-m", "gemini-2.5-pro", "--approval-mode", "yolo", "--resume", "latest", "-p", "again"},
		hint:  "/run/agentfense",
	},
	{
		name:  "opencode",
		files: map[string]string{".config/opencode/opencode.jsonc": `{"$schema": "https://opencode.ai/config.json"}`, ".local/share/opencode/auth.json": `{}`},
		edit:  settingsEdit{settings: ".config/opencode/opencode.jsonc"},
		steps: func(command, file string) []model.Step {
			return []model.Step{
				{Tool: "bash", Input: map[string]any{"command": command, "description": "look"}},
				{Tool: "read", Input: map[string]any{"filePath": file}},
				{Tool: "edit", Input: map[string]any{"filePath": file, "oldString": "one", "newString": "two"}},
			}
		},
		env:     func(url string) string { return "ANTHROPIC_API_KEY=" + key + " ANTHROPIC_BASE_URL=" + url + "/v1" },
		args:    []string{"run", "-m", "anthropic/claude-sonnet-4-5", "work"},
		again:   []string{"run", "-m", "anthropic/claude-sonnet-4-5", "again"},
		forgets: true,
		hint:    "What this sandbox grants",
	},
	{
		name: "qwen",
		files: map[string]string{
			".qwen/settings.json":                        `{"$version": 4}`,
			".qwen/oauth_creds.json":                     `{"access_token": "old"}`,
			".qwen/output-language.md":                   "# Output language preference: auto\n<!-- qwen-code:llm-output-language: auto -->\n",
			".qwen/extensions/extension-enablement.json": "{}",
		},
		edit: settingsEdit{settings: ".qwen/settings.json", login: ".qwen/oauth_creds.json"},
		steps: func(command, file string) []model.Step {
			return []model.Step{
				{Tool: "run_shell_command", Input: map[string]any{"command": command, "description": "look", "is_background": false}},
				{Tool: "read_file", Input: map[string]any{"file_path": file}},
				{Tool: "edit", Input: map[string]any{"file_path": file, "old_string": "one", "new_string": "two"}},
			}
		},
		env:   func(url string) string { return "OPENAI_API_KEY=" + key + " OPENAI_BASE_URL=" + url + "/v1" },
		args:  []string{"--approval-mode", "yolo", "-p", "work"},
		hint:  hint,
		again: []string{"--approval-mode", "yolo", "--continue", "-p", "again"},
	},
	{
		name:  "copilot",
		files: map[string]string{".copilot/config.json": `{"firstLaunchAt": "2026-01-01T00:00:00.000Z"}`, ".copilot/mcp-config.json": `{"mcpServers": {}}`},
		edit:  settingsEdit{settings: ".copilot/mcp-config.json"},
		steps: func(command, file string) []model.Step {
			return []model.Step{
				{Tool: "bash", Input: map[string]any{"command": command, "description": "look"}},
				{Tool: "view", Input: map[string]any{"path": file}},
				{Tool: "edit", Input: map[string]any{"path": file, "old_str": "one", "new_str": "two"}},
			}
		},
		env: func(url string) string {
			return "COPILOT_MODEL=gpt-4.1 COPILOT_PROVIDER_API_KEY=" + key + " COPILOT_PROVIDER_BASE_URL=" + url + "/v1"
		},
		args:  []string{"--allow-all-tools", "-p", "work"},
		again: []string{"--allow-all-tools", "--continue", "-p", "again"},
		hint:  hint,
	},
}

func TestOthers(t *testing.T) {
	if !*others {
		t.Skip("it installs every agent; make test-long does")
	}
	for _, a := range otherAgents {
		t.Run(a.name, func(t *testing.T) { a.test(t) })
	}
}

func (a otherAgent) test(t *testing.T) {
	w := newWorld(t, a.name, a.files)
	file := filepath.Join(w.project, "app.txt")
	w.write(map[string]string{"project/look.sh": a.edit.command()}) // some agents refuse a command with $()
	m := model.Start(t, append(a.steps("sh look.sh", file), model.Step{Text: "The work is done."})...)
	run := func(m *model.Server, args ...string) (stdout, stderr string) {
		return w.must(a.env(m.URL), append([]string{a.name}, args...)...)
	}
	out, said := run(m, append([]string{"--name", "c", "--"}, a.args...)...)
	wantAll(t, "the answer", out, "The work is done.")
	wantAll(t, "what the model was told", m.Said(), a.hint)
	w.checkAgent(m, "c", said)

	wantAll(t, "the settings", w.read(a.edit.settings), "!command")
	diff, _ := w.must("", "diff", "c", "--in", "home", "--name-status")
	wantAll(t, "the diff of the home", diff, "M\thome:/"+a.edit.settings)
	if a.edit.login != "" {
		wantAll(t, "the login", w.read(a.edit.login), "new")
		wantAll(t, "the diff of the home", diff, "!"+a.edit.login)
	}

	next := model.Start(t, model.Step{Text: "As before."})
	out, said = run(next, append([]string{"--"}, a.again...)...)
	wantAll(t, "the answer", out, "As before.")
	if strings.Contains(next.Said(), "The work is done.") == a.forgets {
		t.Errorf("the agent goes on with the conversation: %v, want %v", a.forgets, !a.forgets)
	}
	if list, _ := w.must("", "ls", "--quiet"); list != "c\n" {
		t.Errorf("sandboxes: %q, want c alone\n%s", list, said)
	}
}

// TestAider is apart because the agent has no tools. Its model answers with blocks of text, and its
// shell is that of its test command.
func TestAider(t *testing.T) {
	if !*others {
		t.Skip("it installs every agent; make test-long does")
	}
	w := newWorld(t, "aider", map[string]string{
		".aider/caches/model_prices_and_context_window.json": `{"gpt-4.1": {}}`,
		".aider.conf.yml": "dark-mode: true\n",
	})
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "app.txt"}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "--quiet", "--message", "x"}} {
		cmd := exec.Command("git", append([]string{"-C", w.project}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	m := model.Start(t,
		model.Step{Text: "app.txt\n```\n<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE\n```\n"},
		model.Step{Text: "The work is done."},
	)
	env := "OPENAI_API_KEY=" + key + " OPENAI_API_BASE=" + m.URL + "/v1"
	w.write(map[string]string{"project/look.sh": look + "echo 'test-cmd: x' >> ~/.aider.conf.yml; exit 1\n"})
	out, said := w.must(env, "aider", "--name", "c", "--", "--model", "openai/gpt-4.1", "--yes-always", "--no-auto-commits", "--no-dirty-commits",
		"--auto-test", "--test-cmd", "sh look.sh", "--message", "work", "app.txt")
	wantAll(t, "the answer", out, "The work is done.")
	all := m.Said()
	wantAll(t, "what the model was told", all, "What this sandbox grants", "project: ", "home: ", "!of-the-project", "!never-to-be-seen")
	for _, r := range m.Requests() {
		if r.Key != key || strings.Contains(r.Body, key) {
			t.Errorf("%s has the key %q, and the agent knows it: %v", r.Path, r.Key, strings.Contains(r.Body, key))
		}
	}
	if w.read("project/app.txt") != "one\n" || w.read("project/made.txt") != "" || w.read(".cache/x/y") != "" {
		t.Error("the agent has changed the source")
	}
	wantAll(t, "the settings", w.read(".aider.conf.yml"), "!test-cmd")
	wantAll(t, "the summary", ours(said), "network: localhost", "!id_ed25519")
	w.must("", "apply", "c", "app.txt")
	wantAll(t, "the file", w.read("project/app.txt"), "two")
}
