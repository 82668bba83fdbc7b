package agents_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/harness/model"
)

// native runs an agent itself, outside of any sandbox.
func (w *world) native(env []string, name string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `exec "$0" "$@"`, name}, args...)...) // by the world's PATH
	cmd.Dir, cmd.Env = w.project, append(slices.Clip(w.env), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// lookOutside is a command that an agent outside means to run here.
const lookOutside = `echo "it's: $(ls -A | tr '\n' ' ')"; cat .env ~/notes.txt ~/.ssh/id_ed25519; [[ -e made.txt ]] || echo made > made.txt; mkdir -p .vscode; echo x > .vscode/tasks.json; cat app.txt`

// checkOutside checks what the commands of an agent outside saw and changed.
func (w *world) checkOutside(m *model.Server) {
	w.t.Helper()
	t := w.t.(*testing.T)
	wantAll(t, "what the model was told", m.Said(), "it's: ", "!of-the-project", "!never-to-be-seen", "not in the project yet: .vscode/tasks.json: waits for a review", "two")
	if w.read("project/made.txt") != "made\n" || w.read("project/.vscode/tasks.json") != "" {
		t.Error("what the commands changed is not in the project, or what must wait is")
	}
}

// Claude Code runs outside, edits files there, and its shell commands run in a sandbox: they see
// its edits, and it sees what they change.
func TestClaudeOutsideWithTheHook(t *testing.T) {
	w := newWorld(t, "claude", map[string]string{".claude/settings.json": `{"model": "test"}`})
	w.must("", "hook", "install", "claude")
	file := filepath.Join(w.project, "app.txt")
	m := model.Start(t,
		model.Step{Tool: "Read", Input: map[string]any{"file_path": file}},
		model.Step{Tool: "Edit", Input: map[string]any{"file_path": file, "old_string": "one", "new_string": "two"}},
		model.Step{Tool: "Bash", Input: map[string]any{"command": lookOutside, "description": "look"}},
		model.Step{Tool: "Read", Input: map[string]any{"file_path": filepath.Join(w.project, "made.txt")}},
		model.Step{Text: "The work is done."},
	)
	env := []string{"ANTHROPIC_API_KEY=" + key, "ANTHROPIC_BASE_URL=" + m.URL, "IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
	out := w.native(env, "claude", "-p", "work", "--dangerously-skip-permissions")
	wantAll(t, "the answer", out, "The work is done.")
	w.checkOutside(m)

	// A policy that no sandbox can have blocks the command, and the agent is told why.
	w.write(map[string]string{"project/.agentfense.yaml": "version: 1\npreset: full-access\n", "project/made.txt": ""})
	w.must("", "rm", "--force", strings.TrimSpace(first(w.must("", "ls", "--quiet"))))
	m = model.Start(t, model.Step{Tool: "Bash", Input: map[string]any{"command": "touch never", "description": "do"}}, model.Step{Text: "It was refused."})
	env[1] = "ANTHROPIC_BASE_URL=" + m.URL
	w.native(env, "claude", "-p", "work", "--dangerously-skip-permissions")
	wantAll(t, "what the model was told", m.Said(), "the command was not run: the project's .agentfense.yaml grants more")
	if _, err := os.Stat(filepath.Join(w.project, "never")); err == nil {
		t.Error("the command has run")
	}
}

func first(out, _ string) string { return out }

// Codex, which wants to be told to trust the hook. A person does that by /hooks.
func TestCodexOutsideWithTheHook(t *testing.T) {
	w := newWorld(t, "codex", nil)
	w.must("", "hook", "install", "codex", "--scope", "user")
	m := model.Start(t,
		model.Step{Tool: "exec_command", Input: map[string]any{"cmd": "echo two > app.txt; " + lookOutside}},
		model.Step{Text: "The work is done."},
	)
	w.write(map[string]string{".codex/config.toml": "model = \"gpt-5.1-codex\"\nmodel_provider = \"scripted\"\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"" + m.URL + "/v1\"\nwire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n"})
	out := w.native([]string{"OPENAI_API_KEY=" + key}, "codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--dangerously-bypass-hook-trust", "work")
	wantAll(t, "the answer", out, "The work is done.")
	w.checkOutside(m)
}

// withServer is the binary beside which the program agentfense-server lies.
var withServer = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(binary), "both")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return harness.BuildWithServer(dir)
})

// Claude Code with the tools of agentfense mcp in place of its own.
func TestClaudeWithMCP(t *testing.T) {
	both, err := withServer()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "claude", nil)
	w.native(nil, "claude", "mcp", "add", "agentfense", "--", both, "mcp", "--preset", "development", "--name", "m")
	m := model.Start(t,
		model.Step{Tool: "mcp__agentfense__exec", Input: map[string]any{"command": look}},
		model.Step{Tool: "mcp__agentfense__write", Input: map[string]any{"path": "app.txt", "content": "two\n"}},
		model.Step{Tool: "mcp__agentfense__request_apply", Input: map[string]any{"message": "done"}},
		model.Step{Text: "The work is done."},
	)
	env := []string{"ANTHROPIC_API_KEY=" + key, "ANTHROPIC_BASE_URL=" + m.URL, "IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
	out := w.native(env, "claude", "-p", "work", "--dangerously-skip-permissions", "--tools", "")
	wantAll(t, "the answer", out, "The work is done.")
	wantAll(t, "what the model was told", m.Said(), "project: ", "!of-the-project", "!never-to-be-seen", "!"+key[10:]+"\\n", "agentfense apply m --reviewed ")
	if w.read("project/app.txt") != "one\n" {
		t.Error("the agent has changed the source")
	}
	diff, _ := w.must("", "diff", "m", "--name-status")
	wantAll(t, "the diff", diff, "M\tapp.txt", "A\tmade.txt")
	w.must("", "apply", "m")
	if w.read("project/app.txt") != "two\n" {
		t.Error("the changes were not applied")
	}
}
