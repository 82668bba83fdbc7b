package reviewui

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// sitAsked is a person at a screen on which asks wait for an answer.
func sitAsked(t *testing.T, asks ...api.Ask) (*fake, *person) {
	t.Helper()
	f := newFake()
	p := sit(t, f, 100, 20)
	p.waits(f, asks...)
	return f, p
}

// waits changes what waits.
func (p *person) waits(f *fake, asks ...api.Ask) {
	f.asks = asks
	p.m.asks.told = make(chan []api.Ask)
	close(p.m.asks.told)
	p.tell(askedNow{waiting: asks})
}

func (p *person) types(text string) {
	for _, r := range text {
		p.press(string(r))
	}
	p.press("enter")
}

func askOf(id, path string) api.Ask {
	return api.Ask{
		ID: id, Path: vpath.Path(path).Text(), Permission: policy.Read, Need: policy.Write, Operation: "open",
		Program: "node", Since: time.Unix(0, 0), Until: time.Now().Add(time.Hour),
	}
}

func TestAnswersAnAsk(t *testing.T) {
	for typed, want := range map[string]api.Answer{
		"WORD":          {ID: "1", Allow: true, Scope: api.ScopeOnce, By: "review"},
		"WORD sandbox":  {ID: "1", Allow: true, Scope: api.ScopeSandbox, By: "review"},
		"WORD project":  {ID: "1", Allow: true, Scope: api.ScopeProject, By: "review"},
		"deny":          {ID: "1", Scope: api.ScopeOnce, By: "review"},
		" deny sandbox": {ID: "1", Scope: api.ScopeSandbox, By: "review"},
	} {
		f, p := sitAsked(t, askOf("1", "/a"), askOf("2", "/b"))
		p.sees("2 waiting for your answer (a)")
		p.press("n")
		p.sees(`waits   write "/b": open`)
		p.press("a")
		p.sees(`write "/a": open by the program "node" (now: read, by no rule)`)
		p.sees("type " + p.m.dialog.word + " sandbox")
		p.types(strings.ReplaceAll(typed, "WORD", p.m.dialog.word))
		if diff := cmp.Diff([]api.Answer{want}, f.answers); diff != "" {
			t.Errorf("%s (-want +got)\n%s", typed, diff)
		}
		p.sees(map[bool]string{true: "allowed: write", false: "refused: write"}[want.Allow])
	}
}

// An agent that asks while a person types gets no answer by that.
func TestWhatWasTypedBeforeTheQuestionIsNoAnswer(t *testing.T) {
	f, p := sitAsked(t, askOf("1", "/a"))
	p.press("a")
	word := p.m.dialog.word
	for _, typed := range []string{"", "y", "a", "d", "j", "allow", "sandbox", word + "x", "denyx"} {
		p.types(typed)
		p.sees("That is no answer.")
	}
	p.tell(tea.PasteMsg{Content: word})
	p.press("enter", "A", "*", "q", "d", "enter", "esc")
	p.press("a")
	if p.m.dialog.word == word {
		t.Error("the word is the same again")
	}
	p.types(word)
	if len(f.answers) > 0 || len(p.m.staged) > 0 {
		t.Errorf("answers %v, staged %v", f.answers, p.m.staged)
	}
}

func TestADialogStaysWithItsAsk(t *testing.T) {
	f, p := sitAsked(t, askOf("1", "/a"))
	p.press("a")
	word := p.m.dialog.word
	p.waits(f, askOf("2", "/other")) // the program withdrew, and asks for something else
	p.sees(`write "/a"`)
	p.sees("It waits no longer")
	p.types(word)
	if p.m.mode != browsing || len(f.answers) > 0 {
		t.Errorf("mode %v, answers %v", p.m.mode, f.answers)
	}
	// Another ask that has the number of the one that is shown is not answered: the sandbox was
	// started again, and the list has not come.
	p.press("a")
	f.asks = []api.Ask{askOf("2", "/another")}
	p.types(p.m.dialog.word)
	p.sees("It waits no longer. The answer does not count.")
	if len(f.answers) > 0 {
		t.Errorf("answers %v", f.answers)
	}
	p.press("esc")

	p.waits(f, askOf("3", "/c"), askOf("4", "/d"))
	p.press("a")
	word = p.m.dialog.word
	p.press("tab")
	p.sees(`write "/d"`)
	p.types(word) // of the question before
	p.types(p.m.dialog.word)
	if len(f.answers) != 1 || f.answers[0].ID != "4" {
		t.Errorf("answers %v", f.answers)
	}
}

// If the question does not fit, the word that allows is not shown.
func TestAQuestionThatDoesNotFitCannotBeAllowed(t *testing.T) {
	long := askOf("1", "/"+strings.Repeat("x", 3000)+"\x1b[2J/.git/hooks/pre-commit")
	_, p := sitAsked(t, long)
	p.press("a")
	screen := strings.Join(p.screen(), "\n")
	if strings.Contains(screen, p.m.dialog.word) {
		t.Errorf("the word is shown beside a part of the question:\n%s", screen)
	}
	p.sees("does not fit on the screen")
	p.tell(tea.WindowSizeMsg{Width: 200, Height: 60})
	p.sees(`\x1b[2J/.git/hooks/pre-commit"`)
	p.sees("type " + p.m.dialog.word)
}
