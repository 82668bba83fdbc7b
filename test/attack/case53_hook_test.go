package attack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/test/harness"
)

// agentOutside is an agent with the hook of agentfense, which runs shell commands as Claude Code
// does: it asks the hook, and runs what that answers.
type agentOutside struct {
	s    *harness.Sandbox
	line string // of the hook, in the settings
}

// newAgentOutside installs the hook with flags.
func newAgentOutside(t *testing.T, s *harness.Sandbox, flags ...string) *agentOutside {
	t.Helper()
	r := s.Agentfense(append([]string{"hook", "install", "claude"}, flags...)...)
	if r.Code != 0 {
		t.Fatalf("hook install: %+v", r)
	}
	var settings struct {
		Hooks map[string][]struct{ Hooks []struct{ Command string } }
	}
	if err := json.Unmarshal([]byte(s.Read(".claude/settings.local.json")), &settings); err != nil {
		t.Fatal(err)
	}
	return &agentOutside{s, settings.Hooks["PreToolUse"][0].Hooks[0].Command}
}

// hook asks the hook about a command.
func (a *agentOutside) hook(t *testing.T, input string) (stdout, stderr string, code int) {
	t.Helper()
	return a.shell(t, a.line, input)
}

// shell runs a line in the project, as the agent's shell tool does.
func (a *agentOutside) shell(t *testing.T, line, input string) (stdout, stderr string, code int) {
	t.Helper()
	cmd, out, errs := a.command(line, input)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// command is shell that is not started yet.
func (a *agentOutside) command(line, input string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	like := a.s.Command(context.Background())
	cmd = exec.Command("bash", "-c", line)
	cmd.Dir, cmd.Env = like.Dir, append(like.Env, "CLAUDE_PROJECT_DIR="+a.s.Source)
	cmd.Stdin = strings.NewReader(input)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

func call(t *testing.T, command string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": map[string]any{"command": command, "description": "d"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs a command as the agent would.
func (a *agentOutside) run(t *testing.T, command string) (stdout, stderr string, code int) {
	t.Helper()
	return a.shell(t, a.replaced(t, command), "")
}

// replaced is what the agent runs in place of a command.
func (a *agentOutside) replaced(t *testing.T, command string) string {
	t.Helper()
	answer, errs, code := a.hook(t, call(t, command))
	if code != 0 {
		t.Fatalf("the hook refused %q: %s", command, errs)
	}
	var got struct {
		Output struct {
			Decision string `json:"permissionDecision"`
			Updated  struct{ Command, Description string }
		} `json:"hookSpecificOutput"`
	}
	raw := strings.Replace(answer, "updatedInput", "updated", 1)
	if err := json.Unmarshal([]byte(raw), &got); err != nil || got.Output.Updated.Description != "d" || got.Output.Decision != "" {
		t.Fatalf("the hook answered %q (%v)", answer, err)
	}
	return got.Output.Updated.Command
}

// The command that the agent means runs inside, byte for byte, and nothing of it outside.
func TestHookedCommandsArriveUnchanged(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "a\n", ".env": "KEY=1\n"})
	a := newAgentOutside(t, s)
	outside := filepath.Join(t.TempDir(), "outside")
	commands := []string{
		`echo "it's $HOME"`, "--help", "'; touch " + outside + "; '", "$(touch " + outside + ")", "`touch " + outside + "`",
		"true\ntouch " + outside + "\n", "echo a # '\necho b", `printf '%s\n' '!' "\\" é`, "cat <<'X'\n'$x'\nX\n", "touch " + outside + " || exit 7",
		"[[ a == a ]] && echo bash", "cat .env",
	}
	for _, command := range commands {
		_, _, _ = a.run(t, command)
		if _, err := os.Lstat(outside); err == nil {
			t.Fatalf("%q has run outside", command)
		}
	}
	name := strings.TrimSpace(s.Agentfense("ls", "--quiet").Stdout)
	var ran []string
	for _, e := range events(t, s, name, "command_executed") {
		argv := e["argv"].([]any)
		command, err := vpath.Unescape(argv[len(argv)-1].(string))
		if err != nil {
			t.Fatal(err)
		}
		ran = append(ran, command)
	}
	if !slices.Equal(ran, commands) {
		t.Errorf("inside: %q\nwant: %q", ran, commands)
	}
	if out, errs, code := a.run(t, "[[ a == a ]] && cat a.txt; cat .env; exit 7"); out != "a\n" || code != 7 || !strings.Contains(errs, ".env: No such file") {
		t.Errorf("a command: %q %q %d", out, errs, code)
	}
}

// A hook that fails blocks the command: the exit code is 2, with a reason. An agent takes every
// other failure as one that does not matter.
func TestAHookThatFailsBlocks(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "a\n"})
	copied := filepath.Join(t.TempDir(), "agentfense")
	if out, err := exec.Command("cp", binary, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Binary = copied
	a := newAgentOutside(t, s)
	s.Binary = binary
	blocked := func(what, input string) {
		t.Helper()
		stdout, stderr, code := a.hook(t, input)
		if code != 2 || stderr == "" || stdout != "" {
			t.Errorf("%s: exit code %d, %q, %q", what, code, stdout, stderr)
		}
	}
	blocked("no call", "")
	blocked("a tool without a command", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{}}`)
	s.Write(".agentfense.yaml", "version: 1\npreset: full-access\n")
	blocked("a project's policy that widens", call(t, "true"))
	s.Write(".agentfense.yaml", "version: 2\n")
	blocked("a policy that cannot be read", call(t, "true"))
	if err := os.Remove(filepath.Join(s.Source, ".agentfense.yaml")); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := a.shell(t, "cd /tmp && "+strings.Replace(strings.Split(a.line, " || ")[0], "'claude'", "'run' '--dir="+s.Source+"' '--' 'echo ran'", 1), ""); code != 125 || stdout != "" {
		t.Errorf("a directory outside of the project: exit code %d, %q, %q", code, stdout, stderr)
	}
	if err := os.Remove(copied); err != nil {
		t.Fatal(err)
	}
	blocked("no program any more", call(t, "true"))
}

// What a command changes is in the project when it ends, but what could act there by itself: that
// waits for a person. Among it are the settings with the hook.
func TestHookedCommandsLeaveRisksForReview(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a.txt": "a\n", "old/b": "b\n", ".vscode/settings.json": "{}\n", "package.json": "{}\n", "docs/x": "x\n"})
	if out, err := exec.Command("git", "init", "-q", s.Source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a := newAgentOutside(t, s)
	was := s.Read(".claude/settings.local.json")
	_, stderr, code := a.run(t, `echo new > 'n w.txt'; rm -r old; echo '{"scripts":{}}' > package.json; mkdir -p d/e; printf '#!/bin/sh\n' > d/e/run; chmod +x d/e/run
		echo evil > .git/hooks/post-commit; echo '{"a":1}' > .vscode/settings.json; chmod +x .vscode/settings.json; rm -r .claude; echo evil > .envrc; chmod +x .envrc
		rm -r docs; ln -s /etc docs; mkdir sub; echo '{}' > sub/.mcp.json; echo ok > sub/fine; false`)
	if code != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for path, want := range map[string]string{"n w.txt": "new\n", "package.json": "{\"scripts\":{}}\n", "d/e/run": "#!/bin/sh\n", "sub/fine": "ok\n", ".vscode/settings.json": "{}\n", ".claude/settings.local.json": was, "docs/x": "x\n"} {
		if got := s.Read(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"old", ".git/hooks/post-commit", ".envrc", "sub/.mcp.json"} {
		if _, err := os.Lstat(filepath.Join(s.Source, path)); err == nil {
			t.Errorf("%s exists in the project", path)
		}
	}
	for _, path := range []string{".git/hooks/post-commit", ".vscode/settings.json", ".claude/settings.local.json", ".envrc", "docs", "sub/.mcp.json"} {
		if !strings.Contains(stderr, "not in the project yet: "+path+": ") {
			t.Errorf("the agent is not told that %s waits:\n%s", path, stderr)
		}
	}
	// What the agent edits outside is seen inside, and what waits is not told again.
	s.Write("a.txt", "edited\n")
	if stdout, stderr, _ := a.run(t, "cat a.txt .envrc; git add -A . && git -c user.name=a -c user.email=a@b commit -qm x"); stdout != "edited\nevil\n" || strings.Contains(stderr, ".envrc") {
		t.Errorf("the next command: %q %q", stdout, stderr)
	}
	// Both change a file: the agent's stays, the command's waits, and other files are applied.
	s.Write("b.txt", "b\n")
	cmd, _, said := a.command(a.replaced(t, "echo inside > b.txt; until test -e on; do sleep 0.02; done; echo x > other"), "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(s.Agentfense("ls", "--quiet").Stdout)
	for !strings.Contains(s.Agentfense("diff", name, "--name-status").Stdout, "b.txt") {
	}
	s.Write("b.txt", "outside\n")
	s.Write("on", "")
	if err := cmd.Wait(); err != nil || s.Read("b.txt") != "outside\n" || s.Read("other") != "x\n" || !strings.Contains(said.String(), "b.txt: changed outside, too") {
		t.Errorf("both changed a file: %v, %q %s", err, s.Read("b.txt"), said)
	}
}
