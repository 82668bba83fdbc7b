package terminal_test

import (
	"bytes"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// word waits for the dialog of an ask and returns the word that it wants typed.
func (e *emulator) word() string {
	e.t.Helper()
	e.shows("Allow it once:")
	m := regexp.MustCompile(`Allow it once: +type ([a-z]{5})\b`).FindStringSubmatch(e.tmux("capture-pane", "-p"))
	if m == nil {
		e.t.Fatalf("no word: %s", e.tmux("capture-pane", "-p"))
	}
	return m[1]
}

// TestReviewAnswersAsks answers what a running sandbox asks on the screen of review. What was typed
// before a question was shown answers nothing.
func TestReviewAnswersAsks(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "text of a\n", "b": "text of b\n", "c": "text of c\n"})
	command := s.Command(t.Context(), "run", "--ask", "--ask-timeout", "10m", "--view", "/a", "--view", "/b", "--view", "/c", "--name", "fix", "--", "sh", "-c",
		`cat a; cat b; cat b; ! cat c`)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal on which it could ask
	var out bytes.Buffer
	command.Stdout = &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Agentfense("stop", "fix")
		command.Wait()
		s.Agentfense("rm", "--force", "fix")
	})

	testenv.Eventually(t, "the sandbox asks", func() bool { return strings.Contains(s.Agentfense("policy", "ask", "fix").Stdout, "/a") })
	e := emulate(t, s, "review", "fix")
	e.shows("1 waiting for your answer (a)")
	e.press("n")
	e.shows(`waits   read "/a": open by the program "cat"`)
	e.press("a")
	e.shows(`read "/a": open by the program "cat" (now: view, by "/a")`)
	first := e.word()
	e.press("y", "Enter")
	e.shows("That is no answer.")
	e.press(first, "Enter")
	e.shows("allowed: read \"/a\"")

	e.shows(`waits   read "/b"`)
	e.press("a")
	e.press(first, "Enter") // the word of the question before
	e.shows("That is no answer.")
	e.tmux("send-keys", "-l", e.word()+" sandbox")
	e.press("Enter")

	e.shows(`waits   read "/c"`)
	e.press("a")
	e.shows(`read "/c": open`)
	e.press("deny", "Enter")
	e.shows("refused: read \"/c\"")
	e.press("q")
	e.shows("ended 0")
	if err := command.Wait(); err != nil || out.String() != "text of a\ntext of b\ntext of b\n" {
		t.Errorf("the command: %v, output %q", err, out.String())
	}
	log := s.Agentfense("audit", "fix").Stdout
	for _, want := range []string{"read /a: allowed (once) by review", "read /b: allowed (sandbox) by review", "read /c: denied (once) by review"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}
