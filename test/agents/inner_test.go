package agents_test

import (
	"testing"

	"github.com/agentfense/agentfense/test/harness/model"
)

// Codex runs commands in its own sandbox, inside, by bubblewrap's command line: they can write in
// the project but for its .git, and reach no host.
func TestCodexWithItsOwnSandbox(t *testing.T) {
	w := newWorld(t, "codex", map[string]string{".codex/config.toml": "model = \"gpt-5.1-codex\"\n", "project/.git/config": ""})
	m := model.Start(t,
		model.Step{Tool: "exec_command", Input: map[string]any{"cmd": `echo made > made.txt; echo x > .git/hook; curl -sS --max-time 5 "$OPENAI_BASE_URL"`}},
		model.Step{Text: "The work is done."},
	)
	out, said := w.must("OPENAI_API_KEY="+key+" OPENAI_BASE_URL="+m.URL+"/v1", "codex", "--preset", "full-access", "--name", "c", "--",
		"exec", "--sandbox", "workspace-write", "--skip-git-repo-check", "work")
	wantAll(t, "the answer", out, "The work is done.")
	wantAll(t, "what Codex tells", said, "sandbox: workspace-write")
	wantAll(t, "what the model gets", m.Said(), ".git/hook: Read-only file system", "Could not resolve host")
	diff, _ := w.must("", "diff", "c", "--name-status")
	if want := "A\tmade.txt\n"; diff != want {
		t.Errorf("the diff: %q, want %q", diff, want)
	}
}
