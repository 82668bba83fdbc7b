package agents_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// A person at a terminal uses an agent as without a sandbox: it draws, follows the size of the
// window, and Ctrl-C ends it.
func TestClaudeAtATerminal(t *testing.T) {
	testenv.Command(t, "tmux")
	w := newWorld(t, "claude", nil)
	w.write(map[string]string{".claude.json": fmt.Sprintf(
		`{"hasCompletedOnboarding": true, "theme": "dark", "projects": {%q: {"hasTrustDialogAccepted": true}}}`, w.project)})
	tm := &tmux{w: w, socket: filepath.Join(t.TempDir(), "tmux")}
	t.Cleanup(func() { tm.run("kill-server") })
	tm.run("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", binary+` claude --name c; echo "ended $?"; exec cat`)

	tm.waitFor("Do you want to use this API key?")
	wantAll(t, "the screen", tm.waitFor(line(100)), "!"+key[len(key)-20:]) // it shows the end of the placeholder
	tm.run("send-keys", "Escape")
	tm.waitFor("? for shortcuts")
	tm.run("resize-window", "-x", "60", "-y", "30")
	tm.waitFor(line(60))
	tm.run("send-keys", "C-c")
	tm.waitFor("Press Ctrl-C again to exit")
	tm.run("send-keys", "C-c")
	tm.waitFor("ended 0")
}

// line is one that the agent draws over the whole width of a window.
func line(width int) string { return "\n" + strings.Repeat("─", width) + "\n" }

// tmux is a terminal emulator with one window.
type tmux struct {
	w      *world
	socket string
}

// run runs a command of tmux.
func (tm *tmux) run(args ...string) string {
	tm.w.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", tm.socket}, args...)...)
	cmd.Dir, cmd.Env = tm.w.project, append(slices.Clip(tm.w.env), "ANTHROPIC_API_KEY="+key, "TERM=xterm-256color")
	out, err := cmd.CombinedOutput()
	if err != nil {
		tm.w.t.Errorf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// waitFor returns the screen as soon as it has the text.
func (tm *tmux) waitFor(text string) string {
	tm.w.t.Helper()
	screen := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if screen = tm.run("capture-pane", "-p"); strings.Contains(screen, text) {
			return screen
		}
	}
	tm.w.t.Fatalf("the screen has no %q:\n%s", text, screen)
	return ""
}
