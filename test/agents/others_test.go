package agents_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness/model"
)

// all is for make test-long: CI installs and runs the first two agents only.
var all = flag.Bool("agents.all", false, "install and run all agents, not Claude Code and Codex alone")

// agent is one whose test is as that of others.
type agent struct {
	name     string
	files    map[string]string               // of the home directory before the first start
	env      string                          // with {url} for the address of the model
	work     []string                        // arguments for its work
	again    []string                        // arguments that go on with the conversation
	shell    func(command string) model.Step // nil for an agent that runs look.sh by its arguments
	edits    func(file string) []model.Step  // that make "two" of "one"
	login    string                          // a file of the home directory that is kept, "" for none
	settings string                          // one that waits for a review
	history  string                          // a pattern of a file that is kept, "" for none
}

// others are the agents by the names of their profiles.
var others = []agent{
	{
		name:  "gemini",
		files: map[string]string{".gemini/settings.json": `{"security": {"auth": {"selectedType": "gemini-api-key"}}}`},
		env:   "GEMINI_API_KEY=" + key + " GOOGLE_GEMINI_BASE_URL={url}",
		work:  []string{"--model", "gemini-2.5-pro", "--yolo", "--skip-trust", "-p", "work"}, again: []string{"--model", "gemini-2.5-pro", "--yolo", "--skip-trust", "--resume", "latest", "-p", "again"},
		shell: func(command string) model.Step {
			return model.Step{Tool: "run_shell_command", Input: map[string]any{"command": command, "description": "look"}}
		},
		edits: func(file string) []model.Step {
			return []model.Step{{Tool: "replace", Input: map[string]any{"file_path": file, "old_string": "one", "new_string": "two", "instruction": "Make two of one."}}}
		},
		login: ".gemini/oauth_creds.json", settings: ".gemini/settings.json", history: ".gemini/tmp/*/chats/*.json*",
	},
	{
		name: "qwen",
		env:  "OPENAI_API_KEY=" + key + " OPENAI_BASE_URL={url}/v1 OPENAI_MODEL=qwen3-coder",
		work: []string{"--yolo", "-p", "work"}, again: []string{"--yolo", "--continue", "-p", "again"},
		shell: func(command string) model.Step {
			return model.Step{Tool: "run_shell_command", Input: map[string]any{"command": command, "is_background": false}}
		},
		edits: func(file string) []model.Step {
			return []model.Step{
				{Tool: "read_file", Input: map[string]any{"file_path": file}},
				{Tool: "edit", Input: map[string]any{"file_path": file, "old_string": "one", "new_string": "two"}},
			}
		},
		login: ".qwen/oauth_creds.json", settings: ".qwen/settings.json", history: ".qwen/projects/*/chats/*.jsonl",
	},
	{
		name:  "opencode",
		files: map[string]string{".config/opencode/opencode.json": `{"provider": {"anthropic": {"options": {"baseURL": "{env:ANTHROPIC_BASE_URL}/v1"}}}}`},
		env:   "ANTHROPIC_API_KEY=" + key + " ANTHROPIC_BASE_URL={url}",
		work:  []string{"run", "-m", "anthropic/claude-sonnet-4-5", "work"}, again: []string{"run", "--continue", "-m", "anthropic/claude-sonnet-4-5", "again"},
		shell: func(command string) model.Step {
			return model.Step{Tool: "bash", Input: map[string]any{"command": command, "description": "look"}}
		},
		edits: func(file string) []model.Step {
			return []model.Step{
				{Tool: "read", Input: map[string]any{"filePath": file}},
				{Tool: "edit", Input: map[string]any{"filePath": file, "oldString": "one", "newString": "two"}},
			}
		},
		login: ".local/share/opencode/auth.json", settings: ".config/opencode/opencode.json", history: ".local/share/opencode/opencode.db",
	},
	{
		name: "copilot",
		env:  "COPILOT_PROVIDER_API_KEY=" + key + " COPILOT_PROVIDER_BASE_URL={url}/v1 COPILOT_MODEL=gpt-5",
		work: []string{"--allow-all-tools", "-p", "work"}, again: []string{"--allow-all-tools", "--continue", "-p", "again"},
		shell: func(command string) model.Step {
			return model.Step{Tool: "bash", Input: map[string]any{"command": command, "description": "look"}}
		},
		edits: func(file string) []model.Step {
			return []model.Step{{Tool: "edit", Input: map[string]any{"path": file, "old_str": "one", "new_str": "two"}}}
		},
		settings: ".copilot/mcp-config.json", history: ".copilot/session-state/*/events.jsonl",
	},
	{
		name:  "aider",
		env:   "OPENAI_API_KEY=" + key + " OPENAI_API_BASE={url}/v1",
		work:  []string{"--model", "openai/gpt-4o", "--no-git", "--yes-always", "--auto-test", "--test-cmd", "sh look.sh; exit 1", "--message", "work", "app.txt"},
		again: []string{"--model", "openai/gpt-4o", "--no-git", "--yes-always", "--restore-chat-history", "--message", "again"},
		edits: func(string) []model.Step {
			return []model.Step{{Text: "app.txt\n```\n<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE\n```\n"}}
		},
		settings: ".aider.conf.yml", history: "project/.aider.chat.history.md",
	},
}

func TestOthers(t *testing.T) {
	if !*all {
		return // CI has Claude Code and Codex as a sample
	}
	for _, a := range others {
		t.Run(a.name, func(t *testing.T) { a.test(t) })
	}
}

// test checks what an agent sees and changes, and that it goes on at its next start.
func (a agent) test(t *testing.T) {
	w := newWorld(t, a.name, a.files)
	plant := "mkdir -p ~/" + filepath.Dir(a.settings) + "; echo '{\"hooks\": {}}' > ~/" + a.settings
	if a.login != "" {
		plant += "; echo new > ~/" + a.login
		w.write(map[string]string{a.login: "old"})
	}
	// In a file, because some agents run no command with $(…).
	w.write(map[string]string{"project/look.sh": look + plant})
	steps := a.edits(filepath.Join(w.project, "app.txt"))
	if a.shell != nil {
		steps = append([]model.Step{a.shell("sh look.sh")}, steps...)
	}
	m := model.Start(t, append(steps, model.Step{Text: "The work is done."})...)
	out, said := w.must(strings.ReplaceAll(a.env, "{url}", m.URL), append([]string{a.name, "--name", "c", "--"}, a.work...)...)
	wantAll(t, "the answer", out, "The work is done.")
	w.checkAgent(m, "c", said)
	if a.login != "" {
		wantAll(t, "the login", w.read(a.login), "new")
	}
	wantAll(t, "the settings", w.read(a.settings), "!hooks")
	diff, _ := w.must("", "diff", "c", "--in", "home", "--name-status")
	wantAll(t, "the diff of the home", diff, "home:/"+a.settings, "!oauth_creds", "!auth.json")
	if found, _ := filepath.Glob(filepath.Join(w.home, a.history)); len(found) != 1 {
		t.Errorf("the history %s is not kept: %q", a.history, found)
	}

	next := model.Start(t, model.Step{Text: "As before."})
	out, _ = w.must(strings.ReplaceAll(a.env, "{url}", next.URL), append([]string{a.name, "--"}, a.again...)...)
	wantAll(t, "the answer", out, "As before.")
	wantAll(t, "the conversation", next.Said(), "The work is done.")
}
