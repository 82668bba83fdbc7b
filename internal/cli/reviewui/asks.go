package reviewui

import (
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// asks are the refusals that wait for an answer. FollowAsks runs beside the commands of source,
// because it takes as long as the sandbox runs.
type asks struct {
	waiting   []api.Ask // the oldest first
	following bool
	told      chan []api.Ask // of FollowAsks
}

// askedNow is what waits by now; ended says that FollowAsks has returned.
type askedNow struct {
	waiting []api.Ask
	ended   bool
	err     error
}

// follow begins to follow what waits, if that is known to be possible and has not begun.
func (m *model) followAsks(l listed) tea.Cmd {
	if !l.asks || m.asks.following {
		return nil
	}
	m.asks.following, m.asks.told = true, make(chan []api.Ask)
	return tea.Batch(m.source.followAsks(m.asks.told), nextAsks(m.asks.told))
}

// followAsks sends what waits to told, until the sandbox stops.
func (s *source) followAsks(told chan<- []api.Ask) tea.Cmd {
	return func() tea.Msg {
		err := s.o.Backend.FollowAsks(s.ctx, s.o.Name, func(waiting []api.Ask) error {
			select {
			case told <- slices.Clone(waiting):
				return nil
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		})
		close(told)
		return askedNow{ended: true, err: err}
	}
}

// nextAsks waits for the next list.
func nextAsks(told <-chan []api.Ask) tea.Cmd {
	return func() tea.Msg {
		if waiting, more := <-told; more {
			return askedNow{waiting: waiting}
		}
		return nil
	}
}

// takeAsking takes what is about asks.
func (m *model) takeAsking(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case askedNow:
		return m.takeAsks(msg)
	case answered:
		m.takeAnswered(msg)
	case dialogTick:
		if m.mode == answering {
			return m.second()
		}
	}
	return nil
}

func (m *model) takeAsks(a askedNow) tea.Cmd {
	m.asks.waiting = a.waiting
	if m.mode == answering && m.dialog.err == "" && !slices.ContainsFunc(a.waiting, m.dialog.isOf) {
		m.dialog.end("It waits no longer: it was answered, its time is over, or the program went on.")
	}
	if !a.ended {
		return nextAsks(m.asks.told)
	}
	m.asks.following = false
	if a.err != nil && m.source.ctx.Err() == nil {
		m.status = a.err.Error()
	}
	return nil
}

// answered is how an answer was taken.
type answered struct {
	ask   api.Ask
	allow bool
	err   error
}

// answer answers an ask.
func (s *source) answer(shown api.Ask, a api.Answer) tea.Cmd {
	return func() tea.Msg { return answered{shown, a.Allow, s.o.Answer(s.ctx, s.o.Name, shown, a)} }
}

// panelLines are what waits for an answer, and below it what was refused or reached.
func (m *model) panelLines(height int) []line {
	var lines []line
	for _, a := range m.asks.waiting {
		if len(lines) == height {
			return lines
		}
		left := max(0, time.Until(a.Until)).Round(time.Second)
		lines = append(lines, line{{fmt.Sprintf("%-8s ", left), "90"}, {"waits   ", "1;33"}, {printable(present.AskLine(a)), ""}})
	}
	if len(lines) == height {
		return lines
	}
	return append(lines, m.panel.lines(height-len(lines))...)
}
