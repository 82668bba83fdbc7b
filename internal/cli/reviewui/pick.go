package reviewui

import (
	"context"
	"os"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// Choice is a sandbox that may be reviewed.
type Choice struct{ Name, About string }

// Pick asks which sandbox is meant. It returns "" if the person leaves.
func Pick(ctx context.Context, in, out *os.File, choices []Choice) (string, error) {
	p := &picker{choices: choices}
	err := run(ctx, p, in, out)
	return p.chosen, err
}

type picker struct {
	choices       []Choice
	cursor, top   int
	width, height int
	chosen        string
}

// Init does nothing.
func (p *picker) Init() tea.Cmd { return nil }

// Update takes a message.
func (p *picker) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		p.width, p.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "up", "k":
			p.cursor = max(0, p.cursor-1)
		case "down", "j":
			p.cursor = min(len(p.choices)-1, p.cursor+1)
		case "enter", "space":
			p.chosen = p.choices[p.cursor].Name
			return p, tea.Quit
		case "q", "esc", "ctrl+c":
			return p, tea.Quit
		}
	}
	return p, nil
}

// View draws the choices.
func (p *picker) View() tea.View {
	height := max(1, p.height-2)
	p.top = max(0, max(min(p.top, p.cursor), p.cursor-height+1))
	lines := []string{fit(line{{padded(" Which sandbox?", p.width), "7"}}, p.width, 0)}
	for i := range min(height, len(p.choices)-p.top) {
		c := p.choices[p.top+i]
		l := line{{" " + padded(printable(c.Name), 24), "1"}, {"  " + printable(c.About), "90"}}
		if p.top+i == p.cursor {
			l = selected(l, p.width, true)
		}
		lines = append(lines, fit(l, p.width, 0))
	}
	lines = append(lines, fit(line{{" Enter: review · q: leave", "90"}}, p.width, 0))
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}
