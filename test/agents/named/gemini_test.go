package named_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness/model"
)

// key is what the caller has in the environment. No agent may know it.
const key = "AIzaTest0123456789abcdefghijklmnopqrstuvwxyz"

// Gemini CLI needs nothing but a key: no settings say which kind of login it has.
func TestGeminiWithAKeyAlone(t *testing.T) {
	if !*others {
		t.Skip("it installs every agent; make test-long does")
	}
	m := model.New(
		model.Step{Tool: "run_shell_command", Input: map[string]any{"command": "env | sort", "description": "look"}},
		model.Step{Text: "The work is done."},
	)
	p := newPerson(t, "gemini", nil, m, "generativelanguage.googleapis.com")
	out, said := p.must("GEMINI_API_KEY="+key, "gemini", "--", "--skip-trust", "-m", "gemini-2.5-pro", "--approval-mode", "yolo", "-p", "work")
	if !strings.Contains(out, "The work is done.") {
		t.Errorf("the answer: %q\n%s", out, said)
	}
	for _, r := range m.Requests() {
		if r.Key != key || strings.Contains(r.Body, key) {
			t.Errorf("%s has the key %q, and the agent knows it: %v", r.Path, r.Key, strings.Contains(r.Body, key))
		}
	}
}
