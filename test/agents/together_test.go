package agents_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/test/harness/model"
)

// TestTwoAgentsOfOneHome runs two agents at once: the model answers neither before both have asked,
// and neither ends before both have changed the same files of the home directory. Then the files
// are whole and have what both added, and what both changed is that of the one that ended first:
// the other one's waits, and it says so.
func TestTwoAgentsOfOneHome(t *testing.T) {
	w := newWorld(t, "claude", map[string]string{
		".claude.json": `{"hasCompletedOnboarding": true, "mcpServers": {"mine": {"command": "true"}},
			"firstStartTime": "2025-01-01T00:00:00.000Z", "memoryUsageCount": 5, "promptQueueUseCount": 5}`,
		".claude/.credentials.json": `{"token": "old"}`,
		".claude/history.jsonl":     `{"display": "of the user"}` + "\n",
	})
	type end struct {
		name, out, said string
		err             error
	}
	ends := make([]end, 2)
	counts := []string{"memoryUsageCount", "promptQueueUseCount"}
	var asked, changed, wg sync.WaitGroup
	asked.Add(2)
	changed.Add(2)
	meet := func(all *sync.WaitGroup) func() {
		var once sync.Once
		return func() {
			once.Do(all.Done)
			all.Wait()
		}
	}
	for i := range ends {
		name := fmt.Sprintf("c%d", i)
		change := fmt.Sprintf(`echo '{"token": "%s"}' > ~/.claude/.credentials.json; sed -i 's/2025-01-01T/2025-01-1%dT/; s/"%s": *5/"%s": 77/' ~/.claude.json; cat ~/.claude.json`, name, i, counts[i], counts[i])
		m := model.Start(t,
			model.Step{Hold: meet(&asked), Tool: "Bash", Input: map[string]any{"command": change, "description": "log in"}},
			model.Step{Hold: meet(&changed), Text: "Done by " + name},
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
	var first string
	for i, e := range ends {
		if e.err != nil {
			t.Fatalf("%s: %v\n%s", e.name, e.err, e.said)
		}
		wantAll(t, "the answer", e.out, "Done by "+e.name)
		if e.name == token.Token {
			first = fmt.Sprintf("2025-01-1%dT00:00:00.000Z", i)
			wantAll(t, "what the first one says", ours(e.said), "!not kept: ")
			continue
		}
		wantAll(t, "what the second one says", ours(e.said),
			"kept, as apply: keep says: home:/.claude.json (", "not kept: home:/.claude.json (firstStartTime, ",
			"not kept: home:/.claude/.credentials.json: changed in the source since the sandbox saw it")
		diff, _ := w.must("", "diff", e.name, "--in", "home")
		wantAll(t, "its diff", diff, fmt.Sprintf("+  \"firstStartTime\": \"2025-01-1%dT", i), `+{"token": "`+e.name+`"}`)
	}
	var state struct {
		FirstStartTime, UserID                string
		MemoryUsageCount, PromptQueueUseCount int
		MCPServers                            map[string]any
	}
	if err := json.Unmarshal([]byte(w.read(".claude.json")), &state); err != nil {
		t.Fatalf(".claude.json: %v", err)
	}
	if state.FirstStartTime != first || state.UserID == "" || state.MemoryUsageCount != 77 || state.PromptQueueUseCount != 77 || state.MCPServers["mine"] == nil {
		t.Errorf(".claude.json: %+v, want the counts of both, the time %s, and the servers of the user", state, first)
	}
	if found, _ := filepath.Glob(filepath.Join(w.home, ".claude/projects/*/*.jsonl")); len(found) != 2 {
		t.Errorf("the conversations: %q, want both", found)
	}
}
