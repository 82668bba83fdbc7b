package terminal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

// emulator is a terminal emulator with the program on its screen.
type emulator struct {
	t      *testing.T
	socket string
}

// emulate starts the program in an emulator.
func emulate(t *testing.T, s *harness.Sandbox, args ...string) *emulator {
	t.Helper()
	e := &emulator{t, filepath.Join(t.TempDir(), "tmux")}
	program := s.Command(t.Context(), args...)
	words := []string{"-S", e.socket, "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", "-c", program.Dir}
	cmd := exec.CommandContext(t.Context(), "tmux", append(words, quoted(program.Args)+"; echo ended $?; read wait")...)
	cmd.Env = append(program.Env, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "SHELL=/bin/sh")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command("tmux", "-S", e.socket, "kill-server").Run() })
	return e
}

func quoted(words []string) string {
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

func (e *emulator) tmux(args ...string) string {
	e.t.Helper()
	out, err := exec.CommandContext(e.t.Context(), "tmux", append([]string{"-S", e.socket}, args...)...).CombinedOutput()
	if err != nil {
		e.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (e *emulator) press(keys ...string) {
	e.t.Helper()
	e.tmux(append([]string{"send-keys"}, keys...)...)
}

// shows waits until the screen has a text.
func (e *emulator) shows(text string) {
	e.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		screen := e.tmux("capture-pane", "-p")
		if strings.Contains(screen, text) {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("%q did not appear; the screen shows:\n%s", text, screen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestReview reviews what a command changed, and goes on changing.
func TestReview(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal("tmux is needed: scripts/setup installs it")
	}
	s := harness.New(t, binary, map[string]string{"a.txt": "old\n", "b.txt": "old\n", "c.txt": "old\n"})
	if out, err := s.Command(t.Context(), "run", "--preset", "full-access", "--name", "fix", "--", "sh", "-c",
		`echo new >a.txt; echo new >b.txt; echo new >c.txt; printf 'x\033[2J\n' >"$(printf 'd\033]0;title\007')"`).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e := emulate(t, s, "review", "fix")
	e.shows("4 changes · 0 staged")
	e.shows("a.txt")
	e.press("G")
	e.shows(`d\x1b]0;title\x07`)
	e.shows(`+x\x1b[2J`)

	e.press("g", "j", "Space")
	e.shows("[x] M a.txt")
	e.press("j", "Space")
	e.shows("[x] M b.txt")
	if out, err := s.Command(t.Context(), "exec", "fix", "--", "sh", "-c", "echo NEW >b.txt; echo more >e.txt").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.shows("[!] M b.txt")
	e.shows("e.txt")
	e.shows("5 changes · 1 staged")

	e.tmux("resize-window", "-x", "40", "-y", "10")
	e.press("g") // takes the note from the last line
	e.shows("A apply · d d…")
	e.tmux("resize-window", "-x", "100", "-y", "24")
	e.press("A")
	e.shows("Apply 1 staged change? [y/N]")
	e.press("y")
	e.shows("Applied 1 change")
	for file, want := range map[string]string{"a.txt": "new\n", "b.txt": "old\n", "c.txt": "old\n"} {
		if got, err := os.ReadFile(filepath.Join(s.Source, file)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", file, got, err, want)
		}
	}

	e.shows("4 changes · 0 staged")
	e.press("g", "j", "j")
	e.shows("│ c.txt")
	e.press("d")
	e.shows("Discard c.txt?")
	e.press("y")
	e.shows("3 changes · 0 staged")
	e.press("C-c")
	e.shows("ended 0")
}

// TestReviewNeedsATerminal says what else there is.
func TestReviewNeedsATerminal(t *testing.T) {
	s := harness.New(t, binary, nil)
	out, err := s.Command(t.Context(), "review", "fix").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "needs a terminal; without one, use agentfense diff NAME") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestReviewOpensAnEditor starts an editor, which has the terminal, and goes on after it.
func TestReviewOpensAnEditor(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal("tmux is needed: scripts/setup installs it")
	}
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\ntest -t 0 && test -t 1 && test -t 2 && echo \"edits $(cat \"$1\")\"\nread answer\nexit $answer\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DIFFTOOL", "")
	t.Setenv("VISUAL", editor)
	t.Setenv("EDITOR", "/nothere")
	s := harness.New(t, binary, map[string]string{"a.txt": "old\n"})
	if out, err := s.Command(t.Context(), "run", "--preset", "full-access", "--name", "fix", "--", "sh", "-c", "echo new >a.txt").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e := emulate(t, s, "review", "fix")
	e.shows("[ ] M a.txt")
	e.press("g", "j", "e")
	e.shows("edits new")
	e.press("7", "Enter")
	e.shows("exit status 7")
	e.press("Space")
	e.shows("[x] M a.txt")
	e.press("q")
	e.shows("ended 0")
}
