package cli

import (
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// A shell that reads the line gets exactly the words, whatever bytes they have.
func TestShellLineKeepsEachWord(t *testing.T) {
	words := []string{"", "a b", "it's", `'\''`, `"$HOME"`, "`id`", "$(id)", "a\nb", "\\", "!x", "*", "~", "=ls", "#", "-n", "--", "\xff\xfe", "é", "\x1b[2J", "&& ;|<>(){}"}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		b := make([]byte, random.IntN(12))
		for i := range b {
			b[i] = byte(1 + random.IntN(255))
		}
		words = append(words, string(b))
	}
	line := shellLine(append([]string{"printf", `%s\0`}, words...))
	for _, shell := range []string{"sh", "bash"} {
		out, err := exec.Command(shell, "-c", line).Output()
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, shell, err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if !slices.Equal(got, words) {
			t.Errorf("seed %d: %s (-want +got):\n%s", seed, shell, cmp.Diff(words, got))
		}
	}
}

const otherHooks = `{
	"model": "x",  "n": 1.00,
	"hooks": {"Stop": [ {"hooks": []} ],
		"PreToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "lint <a && b>"}]}]},
	"env": { "A":"<&>" }
}
`

func TestHooksAreAddedToSettings(t *testing.T) {
	claude, codex := &hookAgents[0], &hookAgents[1]
	line, newer := `'/bin/agentfense' 'hook' 'claude' || exit 2`, `'/opt/agentfense' 'hook' 'claude' '--allow' || exit 2`
	added, err := withHook([]byte(otherHooks), claude, line)
	if err != nil {
		t.Fatal(err)
	}
	text := string(added)
	before, _, _ := strings.Cut(otherHooks, `"PreToolUse"`)
	_, after, _ := strings.Cut(otherHooks, "}]}]}")
	if !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) || !strings.Contains(text, `"command": "lint <a && b>"`) || strings.Count(text, line) != 1 {
		t.Errorf("settings with the hook:\n%s", text)
	}
	for name, again := range map[string]struct {
		agent *hookAgent
		line  string
		want  string
	}{
		"the same hook":              {claude, line, text},
		"a newer one replaces it":    {claude, newer, strings.Replace(text, line, newer, 1)},
		"without one nothing is new": {codex, "", text},
	} {
		got, err := withHook(added, again.agent, again.line)
		if err != nil || string(got) != again.want {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, cmp.Diff(again.want, string(got)))
		}
	}
	removed, err := withHook(added, claude, "")
	if err != nil || strings.Contains(string(removed), "agentfense") || !strings.Contains(string(removed), "lint") || !strings.HasPrefix(string(removed), before) {
		t.Errorf("settings without the hook again: %v\n%s", err, removed)
	}
	for _, alone := range []string{"{}\n", "{ \"a\": 1 }"} {
		with, err := withHook([]byte(alone), codex, line)
		if err == nil {
			with, err = withHook(with, codex, `'/opt/agentfense' 'hook' 'codex'`)
		}
		if err == nil {
			with, err = withHook(with, codex, "")
		}
		if err != nil || !strings.Contains(string(with), "claude") || strings.Contains(string(with), "codex") {
			t.Errorf("%q: another agent's hook was taken for ours: %v\n%s", alone, err, with)
		}
	}
	made, err := withHook(nil, claude, line)
	if err != nil || !strings.HasPrefix(string(made), "{\n  \"hooks\": {\n    \"PreToolUse\": [") {
		t.Errorf("new settings: %v\n%s", err, made)
	}
	if got, err := withHook(made, claude, ""); err != nil || string(got) != "{}\n" {
		t.Errorf("removed from new settings: %q, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "{", `{"hooks": 1}`, `{"hooks": null}`, `{"hooks": {"PreToolUse": {}}}`, `{"a":1,"a":2}`, "// c\n{}"} {
		if got, err := withHook([]byte(bad), claude, line); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %q, %v, want Invalid", bad, got, err)
		}
	}
}

func TestReadHookCallRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":            "",
		"no JSON":            "x",
		"another event":      `{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"command":"ls"}}`,
		"no event":           `{"tool_name":"Bash","tool_input":{"command":"ls"}}`,
		"no command":         `{"hook_event_name":"PreToolUse","tool_name":"Edit","tool_input":{"file_path":"x"}}`,
		"an empty command":   `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":""}}`,
		"a command as list":  `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":["ls"]}}`,
		"a NUL byte":         `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls\u0000"}}`,
		"more than a call":   `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"}} x`,
		"an input of null":   `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":null}`,
		"longer than a call": strings.Repeat(" ", maxHookCall+1),
	} {
		if _, command, err := readHookCall(strings.NewReader(text)); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %q, %v, want Invalid", name, command, err)
		}
	}
}
