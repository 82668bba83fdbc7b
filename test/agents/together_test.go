package agents_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/test/harness/model"
)

// TestTwoAgentsOfOneHome runs two agents at once, which both write the same files of the home
// directory. Whoever ends later: the files are whole, and what is not kept is told.
func TestTwoAgentsOfOneHome(t *testing.T) {
	w := newWorld(t, "claude", map[string]string{
		".claude.json":              `{"hasCompletedOnboarding": true, "mcpServers": {"mine": {"command": "true"}}}`,
		".claude/.credentials.json": `{"token": "old"}`,
	})
	type end struct {
		name, out, said string
		err             error
	}
	ends := make([]end, 2)
	var wg sync.WaitGroup
	for i := range ends {
		name := fmt.Sprintf("c%d", i)
		m := model.Start(t,
			model.Step{Tool: "Bash", Input: map[string]any{"command": fmt.Sprintf(`echo '{"token": "%s"}' > ~/.claude/.credentials.json`, name), "description": "log in"}},
			model.Step{Text: "Done by " + name},
		)
		wg.Go(func() {
			out, said, err := w.agentfense("ANTHROPIC_API_KEY="+key+" ANTHROPIC_BASE_URL="+m.URL, "claude", "--name", name, "--", "-p", "work", "--dangerously-skip-permissions")
			ends[i] = end{name, out, said, err}
		})
	}
	wg.Wait()
	var token struct{ Token string }
	if err := json.Unmarshal([]byte(w.read(".claude/.credentials.json")), &token); err != nil {
		t.Fatalf("the login: %v", err)
	}
	for _, e := range ends {
		if e.err != nil {
			t.Fatalf("%s: %v\n%s", e.name, e.err, e.said)
		}
		wantAll(t, "the answer", e.out, "Done by "+e.name)
		if e.name != token.Token {
			// Its login was kept first, and the other one replaced it, or it waits.
			diff, _ := w.must("", "diff", e.name, "--in", "home", "--name-status")
			wantAll(t, "the summary and the diff of "+e.name, ours(e.said)+diff, ".claude/.credentials.json")
		}
	}
	var state map[string]any
	if err := json.Unmarshal([]byte(w.read(".claude.json")), &state); err != nil {
		t.Fatalf(".claude.json: %v", err)
	}
	if state["userID"] == nil || state["mcpServers"].(map[string]any)["mine"] == nil {
		t.Errorf(".claude.json: %v, want the state of an agent and the servers of the user", state)
	}
	if found, _ := filepath.Glob(filepath.Join(w.home, ".claude/projects/*/*.jsonl")); len(found) != 2 {
		t.Errorf("the conversations: %q, want both", found)
	}
}
