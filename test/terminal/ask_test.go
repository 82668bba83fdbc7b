package terminal_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// word waits for a question and returns the word that it wants typed.
func (s *screen) word() string {
	s.t.Helper()
	s.expect("Allow it once: type ")
	s.mu.Lock()
	from := s.seen
	s.mu.Unlock()
	s.expect("\r\n> ")
	s.mu.Lock()
	defer s.mu.Unlock()
	return wordForm.FindString(s.shown.String()[from:])
}

var wordForm = regexp.MustCompile(`^[a-z]{5}`)

// A program on the terminal is asked about. Only the displayed word allows: neither what was
// typed before, nor what the program prints or makes the terminal answer.
func TestAQuestionOnTheTerminalOfTheCommand(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "text of a\n", "b": "text of b\n", "c": "text of c\n"})
	sc := start(t, s, "run", "--ask", "--view", "/a", "--view", "/b", "--view", "/c", "--name", s.Name, "--env", "PS1", "--", "sh")
	sc.expect("ready> ")
	// The program leaves an unfinished control string, hides the cursor and fills a screen.
	sc.send("printf '\\033[?1049h\\033[?25l\\033[?2004h\\033]0;'; sh -c 'trap \"echo drawn again\" WINCH; read go; read x <a; echo $x then $((40+2))'\n")
	sc.expect("\x1b]0;")
	sc.send("\n")
	sc.expect("\x1b\\") // it ends
	sc.expect("\x1b[?1049l\x1b[?2004l\x1b[?25h")
	sc.expect("agentfense: a program in the sandbox " + s.Name + " waits for your answer.\r\n")
	sc.expect(`read "/a": open by the program "sh" (now: view, by "/a")`)
	word := sc.word()
	sc.send(word + "\n")
	sc.expect("agentfense: allowed once\r\n")
	sc.expect("\x1b[?1049h\x1b[?2004h\x1b[?25l")
	sc.expect("drawn again")
	sc.expect("text of a then 42")

	sc.send("printf '\\033[?1049l'; cat b\n")
	if next := sc.word(); next == word {
		t.Errorf("the word is %s again", next)
	}
	sc.send(word + "\n") // the word of the question before
	sc.expect("agentfense: refused\r\n")
	sc.expect("cat: b: Permission denied")

	sc.send("cat c; cat c; echo twice $((1+1))\n")
	sc.send(sc.word() + " sandbox\n")
	sc.expect("agentfense: allowed in this sandbox")
	sc.expect("text of c\r\ntext of c\r\ntwice 2")
	sc.send("exit 5\n")
	sc.exits(5)
	log := s.Agentfense("audit", s.Name).Stdout
	for _, want := range []string{"read /a: allowed (once) by terminal", "read /b: denied (once) by terminal", "read /c: allowed (sandbox) by terminal"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// A command with pipes is asked about on the terminal all the same, one question after another,
// and a question ends if its program goes.
func TestAQuestionBesideAPipe(t *testing.T) {
	testenv.Command(t, "bash")
	s := harness.New(t, binary, map[string]string{"a": "text of a\n", "b": "text of b\n", "c": "text of c\n"})
	sc := startShell(t, s)
	sc.expect("ready> ")
	sc.send("echo hello | \"$AGENTFENSE\" run --ask --name " + s.Name + " --view /a --view /b --view /c -- sh -c 'cat a & cat b; wait; timeout 1 cat c; cat' | sed s/^/got:/\n")
	for range 2 {
		sc.send(sc.word() + "\n")
		sc.expect("allowed once")
	}
	sc.word()
	sc.expect("the question is over")
	sc.expect("got:hello")
	sc.expect("ready> ")
	sc.send("exit 3\n")
	sc.exits(3)
}
