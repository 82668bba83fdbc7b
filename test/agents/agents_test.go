// Package agents_test runs real coding agents by their profiles, with a scripted model on loopback:
// what they see and change of a project and of a home directory, and which key they have.
package agents_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/harness/model"
)

var binary string

func TestMain(m *testing.M) { harness.Main(m, &binary, harness.Build) }

// key is what the caller has in the environment. No agent may know it.
const key = "sk-test-0123456789abcdefghijklmnopqrstuvwxyz"

// world is a person's home directory with a project in it.
type world struct {
	t             testing.TB
	home, project string
	env           []string
}

// newWorld makes a home directory with files, of which a path below project/ is the project's.
func newWorld(t *testing.T, agent string, files map[string]string) *world {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	testenv.Command(t, "npm", "node")
	out, err := exec.Command("../../scripts/agents", agent).Output()
	if err != nil {
		t.Fatalf("install %s: %v", agent, err)
	}
	dir := filepath.Dir(strings.TrimSpace(string(out)))
	w := &world{t: t, home: harness.OpenDir(t)}
	w.project = filepath.Join(w.home, "project")
	w.env = []string{"HOME=" + w.home, "PATH=" + dir + ":" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	w.write(map[string]string{
		"project/app.txt": "one\n", "project/.env": "TOKEN=of-the-project\n", ".ssh/id_ed25519": "never-to-be-seen\n", "notes.txt": "never-to-be-seen\n",
	})
	w.write(files)
	t.Cleanup(func() { w.agentfense("", "prune", "--yes", "--force") })
	return w
}

func (w *world) write(files map[string]string) {
	w.t.Helper()
	for name, content := range files {
		path := filepath.Join(w.home, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// read returns the content of a file below the home directory, "" if there is none.
func (w *world) read(name string) string {
	content, _ := os.ReadFile(filepath.Join(w.home, name))
	return string(content)
}

// agentfense runs the command line in the project. env, if not "", is one more variable.
func (w *world) agentfense(env string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = w.project, append(slices.Clip(w.env), strings.Fields(env)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must is agentfense that has to succeed.
func (w *world) must(env string, args ...string) (stdout, stderr string) {
	w.t.Helper()
	stdout, stderr, err := w.agentfense(env, args...)
	if err != nil {
		w.t.Fatalf("agentfense %q: %v\n%s\n%s", args, err, stdout, stderr)
	}
	return stdout, stderr
}

// wantAll checks that a text contains each of the parts, and none of those that begin with "!".
func wantAll(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		part, not := strings.CutPrefix(part, "!")
		if strings.Contains(text, part) == not {
			t.Errorf("%s contains %q: %v, want %v\n%.1000s", what, part, not, !not, text)
		}
	}
}

// look is a command that shows what an agent sees, and plants what it must not keep.
const look = `echo "project: $(ls -A | tr '\n' ' ')"; cat .env; echo "home: $(ls -A ~ | tr '\n' ' ')"; cat ~/.ssh/id_ed25519 ~/notes.txt; env; echo made > made.txt; mkdir -p ~/.cache/x; echo x > ~/.cache/x/y; `

func TestClaude(t *testing.T) {
	w := newWorld(t, "claude", map[string]string{
		".claude.json":              `{"hasCompletedOnboarding": true, "mcpServers": {}}`,
		".claude/.credentials.json": `{"token": "old"}`,
		".claude/settings.json":     `{"model": "test"}`,
	})
	file := filepath.Join(w.project, "app.txt")
	m := model.Start(t,
		model.Step{Tool: "Bash", Input: map[string]any{"command": look + `echo '{"token": "new"}' > ~/.claude/.credentials.json; echo '{"hooks": {"Stop": []}}' > ~/.claude/settings.json`, "description": "look"}},
		model.Step{Tool: "Read", Input: map[string]any{"file_path": file}},
		model.Step{Tool: "Edit", Input: map[string]any{"file_path": file, "old_string": "one", "new_string": "two"}},
		model.Step{Text: "The work is done."},
	)
	env := "ANTHROPIC_API_KEY=" + key + " ANTHROPIC_BASE_URL=" + m.URL
	out, said := w.must(env, "claude", "--name", "c", "--", "-p", "work", "--dangerously-skip-permissions")
	wantAll(t, "the answer", out, "The work is done.")
	wantAll(t, "what the model was told", m.Said(), hint)
	w.checkAgent(m, "c", said)

	// What it keeps, and what waits.
	wantAll(t, "the login", w.read(".claude/.credentials.json"), "new")
	wantAll(t, "the settings", w.read(".claude/settings.json"), "!hooks")
	wantAll(t, "the state", w.read(".claude.json"), `"mcpServers"`, "userID")
	diff, _ := w.must("", "diff", "c", "--in", "home", "--name-status")
	wantAll(t, "the diff of the home", diff, "M\thome:/.claude/settings.json", "!credentials")
	if found, _ := filepath.Glob(filepath.Join(w.home, ".claude/projects/*/*.jsonl")); len(found) != 1 {
		t.Errorf("the history is not kept: %q", found)
	}
	w.must("", "apply", "c", "--in", "home", ".claude/settings.json")
	wantAll(t, "the settings", w.read(".claude/settings.json"), "hooks")

	// The next day: the conversation goes on, in another sandbox, of which nothing stays.
	next := model.Start(t, model.Step{Tool: "Bash", Input: map[string]any{"command": "cat ~/.claude/.credentials.json", "description": "look"}}, model.Step{Text: "As before."})
	out, _ = w.must("ANTHROPIC_API_KEY="+key+" ANTHROPIC_BASE_URL="+next.URL, "claude", "--", "--continue", "-p", "again", "--dangerously-skip-permissions", "--append-system-prompt", "Words of the user.")
	wantAll(t, "the answer", out, "As before.")
	wantAll(t, "the conversation", next.Said(), "The work is done.", `\"new\"`, "Words of the user.")
	list, _ := w.must("", "ls", "--quiet")
	if list != "c\n" {
		t.Errorf("sandboxes: %q, want c alone", list)
	}
}

// hint is what the model is told of the sandbox, by agents that have an option for it.
const hint = "You work in a sandbox of agentfense. Its policy may refuse paths and hosts."

// ours returns the lines of a text that agentfense has written.
func ours(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "agentfense: ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// checkAgent checks what every agent must not see, and that the changes wait, in a sandbox in which
// the agent called look, changed app.txt and ended.
func (w *world) checkAgent(m *model.Server, name, said string) {
	w.t.Helper()
	t := w.t.(*testing.T)
	t.Helper()
	all := m.Said()
	wantAll(t, "what the model was told", all, "project: ", "home: ", "!of-the-project", "!never-to-be-seen", "!"+key[10:]+"\\n")
	for _, r := range m.Requests() {
		if r.Key != key && r.Key != "" {
			t.Errorf("%s has the key %q", r.Path, r.Key)
		}
		if strings.Contains(r.Body, key) {
			t.Errorf("%s: the agent knows the key", r.Path)
		}
	}
	if w.read("project/app.txt") != "one\n" || w.read("project/made.txt") != "" || w.read(".cache/x/y") != "" {
		t.Error("the agent has changed the source")
	}
	wantAll(t, "the summary", ours(said), "network: localhost", "review: agentfense diff "+name, "in home", "!id_ed25519")
	diff, _ := w.must("", "diff", name, "--name-status")
	wantAll(t, "the diff", diff, "M\tapp.txt", "A\tmade.txt")
	w.must("", "apply", name)
	if w.read("project/app.txt") != "two\n" || w.read("project/made.txt") != "made\n" {
		t.Error("the changes were not applied")
	}
}

func TestCodex(t *testing.T) {
	w := newWorld(t, "codex", map[string]string{
		".codex/auth.json":   `{"auth_mode": "apikey", "OPENAI_API_KEY": "old"}`,
		".codex/config.toml": "model = \"gpt-5.1-codex\"\n",
	})
	patch := "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: app.txt\n@@\n-one\n+two\n*** End Patch\nEOF\n"
	m := model.Start(t,
		model.Step{Tool: "exec_command", Input: map[string]any{"cmd": look + `echo new > ~/.codex/auth.json; echo 'notify = ["sh"]' >> ~/.codex/config.toml`}},
		model.Step{Tool: "exec_command", Input: map[string]any{"cmd": patch}},
		model.Step{Text: "The work is done."},
	)
	run := func(m *model.Server, args ...string) (stdout, stderr string) {
		return w.must("OPENAI_API_KEY="+key+" OPENAI_BASE_URL="+m.URL+"/v1", append([]string{"codex"}, args...)...)
	}
	out, said := run(m, "--name", "c", "--", "exec", "--skip-git-repo-check", "work")
	wantAll(t, "the answer", out, "The work is done.")
	wantAll(t, "what the model was told", m.Said(), hint)
	w.checkAgent(m, "c", said)
	wantAll(t, "the login", w.read(".codex/auth.json"), "new")
	wantAll(t, "the settings", w.read(".codex/config.toml"), "!notify")
	diff, _ := w.must("", "diff", "c", "--in", "home", "--name-status")
	wantAll(t, "the diff of the home", diff, "M\thome:/.codex/config.toml", "!auth.json")

	next := model.Start(t, model.Step{Text: "As before."})
	out, _ = run(next, "--", "exec", "resume", "--last", "--skip-git-repo-check", "again")
	wantAll(t, "the answer", out, "As before.")
	wantAll(t, "the conversation", next.Said(), "The work is done.")
	if list, _ := w.must("", "ls", "--quiet"); list != "c\n" {
		t.Errorf("sandboxes: %q, want c alone", list)
	}
}
