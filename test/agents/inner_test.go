package agents_test

import (
	"testing"

	"github.com/agentfense/agentfense/test/harness/model"
)

func TestCodexInner(t *testing.T) {
	w := newWorld(t, "codex", map[string]string{
		".codex/auth.json":    `{"auth_mode": "apikey", "OPENAI_API_KEY": "old"}`,
		".codex/config.toml":  "model = \"gpt-5.1-codex\"\n",
		"project/.git/config": "",
	})
	m := model.Start(t,
		model.Step{Tool: "exec_command", Input: map[string]any{"cmd": `id; echo made > made.txt; echo x > .git/hook; echo x > .codex; ls -la; cat /proc/self/mountinfo | grep fuse; curl -sS --max-time 3 $OPENAI_BASE_URL; cat /proc/1/cmdline`}},
		model.Step{Text: "The work is done."},
	)
	out, said := w.must("OPENAI_API_KEY="+key+" OPENAI_BASE_URL="+m.URL+"/v1", "codex", "--preset", "full-access", "--name", "c", "--", "exec", "--sandbox", "workspace-write", "--skip-git-repo-check", "work")
	t.Log(out, said, m.Said())
}
