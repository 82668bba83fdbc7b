package reviewui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// dialog asks the person about one ask.
//
// It never opens by itself, and stays with its ask: another one never takes its place. An answer
// that allows repeats a word that is first shown with the question. So what was typed before, such
// as the keys of the list, is no answer.
type dialog struct {
	ask   api.Ask
	word  string
	typed string
	note  string // what was wrong with what was typed
	sent  bool   // the answer is on its way
	err   string // why the question is over; "" while it is not
}

// maxTyped bounds what is typed in the dialog, in bytes.
const maxTyped = 60

// denies are the words that refuse.
var denies = map[string]api.Scope{"deny": api.ScopeOnce, "deny sandbox": api.ScopeSandbox}

func (d *dialog) isOf(a api.Ask) bool { return d.ask.IsSame(a) }

func (d *dialog) end(why string) { d.err, d.sent, d.typed, d.note = why, false, "", "" }

// dialogTick shows the time that is left.
type dialogTick struct{}

// openDialog asks about the oldest ask.
func (m *model) openDialog() tea.Cmd {
	if len(m.asks.waiting) == 0 {
		m.status = "nothing waits for an answer"
		return nil
	}
	m.mode, m.dialog = answering, dialog{ask: m.asks.waiting[0], word: present.AskWord()}
	return m.second()
}

// dialogKey takes a key in the dialog.
func (m *model) dialogKey(key, text string) tea.Cmd {
	d := &m.dialog
	switch {
	case key == "esc", key == "enter" && d.err != "":
		m.mode = browsing
	case d.err != "" || d.sent:
	case key == "tab":
		m.nextAsk()
	case key == "enter":
		return m.sendAnswer()
	case key == "backspace":
		if r := []rune(d.typed); len(r) > 0 {
			d.typed = string(r[:len(r)-1])
		}
	case len(d.typed)+len(text) <= maxTyped:
		d.typed, d.note = d.typed+printable(text), ""
	}
	return nil
}

// nextAsk asks about the next ask in place of this one.
func (m *model) nextAsk() {
	i := slices.IndexFunc(m.asks.waiting, m.dialog.isOf)
	if len(m.asks.waiting) < 2 || i < 0 {
		return
	}
	m.dialog = dialog{ask: m.asks.waiting[(i+1)%len(m.asks.waiting)], word: present.AskWord()}
}

// sendAnswer answers as was typed, if that is an answer.
func (m *model) sendAnswer() tea.Cmd {
	d := &m.dialog
	answer, allows := present.AllowingAnswer(d.typed, d.word, present.Choices(d.ask, m.o.IsOfProject))
	if scope, is := denies[strings.Join(strings.Fields(d.typed), " ")]; is {
		answer.Scope = scope
	} else if !allows {
		d.typed, d.note = "", "That is no answer."
		return nil
	}
	answer.ID, answer.By = d.ask.ID, "review"
	d.sent = true
	return m.source.answer(d.ask, answer)
}

// takeAnswered closes the dialog of an ask that is answered.
func (m *model) takeAnswered(a answered) {
	isOpen := m.mode == answering && m.dialog.isOf(a.ask)
	switch {
	case a.err == nil && isOpen:
		m.mode, m.status = browsing, "refused: "+present.AskLine(a.ask)
		if a.allow {
			m.status = "allowed: " + present.AskLine(a.ask)
		}
	case a.err == nil:
	case isOpen && errdefs.Is(a.err, errdefs.NotFound):
		m.dialog.end("It waits no longer. The answer does not count.")
	case isOpen:
		m.dialog.typed, m.dialog.sent, m.dialog.note = "", false, a.err.Error()
	default:
		m.status = "the answer does not count: " + a.err.Error()
	}
}

// dialogLines are the question and the possible answers. What asks comes first: if the screen is
// too small to show all of it, the word that allows is not shown either.
func (m *model) dialogLines() []line {
	d := &m.dialog
	title := "Waiting: " + present.AskTitle(m.o.Name, d.ask)
	if n := len(m.asks.waiting); n > 1 {
		title += fmt.Sprintf(" (%d wait; Tab: the next one)", n)
	}
	lines := []line{{{" " + title, "1;33"}}, nil}
	for text := range strings.SplitSeq(ansi.Hardwrap(printable(present.AskLine(d.ask)), max(10, m.width-4), true), "\n") {
		lines = append(lines, line{{"   " + text, "1"}})
	}
	lines = append(lines, nil)
	if d.err != "" {
		return append(lines, line{{" " + d.err, "1;33"}})
	}
	var choices [][2]string
	for _, c := range present.Choices(d.ask, m.o.IsOfProject) {
		choices = append(choices, [2]string{c.Text, d.word + c.Suffix})
	}
	for _, c := range append(choices, [2]string{"Refuse it", "deny"}, [2]string{"Refuse it until the sandbox stops", "deny sandbox"}) {
		lines = append(lines, line{{padded(" "+c[0]+":", 39), ""}, {"type ", "90"}, {c[1], "1"}})
	}
	left := max(0, time.Until(d.ask.Until)).Round(time.Second)
	return append(lines, nil, line{{fmt.Sprintf(" Without an answer it is refused in %s.", left), "90"}})
}

// dialogFooter is where the answer is typed.
func (m *model) dialogFooter() line {
	d := &m.dialog
	switch {
	case d.err != "":
		return line{{" Enter, Esc: back", "90"}}
	case d.sent:
		return line{{" answering …", "1"}}
	case len(m.dialogLines()) > m.height-2:
		return line{{" The question does not fit on the screen: enlarge it. · Esc: decide later", "1;33"}}
	case d.note != "":
		return line{{" " + printable(d.note) + " > █", "1;33"}}
	}
	return line{{" > " + d.typed + "█", "1"}, {"  Enter: answer · Esc: decide later", "90"}}
}
