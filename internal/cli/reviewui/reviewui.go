// Package reviewui is the screen of `agentfense review`: a list of what a sandbox changed, the
// riskiest first, beside the diff of one file.
//
// It reaches sandboxes through backend alone. It shows names and contents escaped, and keeps in
// memory what the person has seen of each file: a stamp of its type, mode, target and content.
// What is applied has those stamps, or is left out. Model changes only in Update; commands of
// Bubble Tea do all I/O, one at a time (source).
package reviewui

import (
	"context"
	"errors"
	"os"

	tea "charm.land/bubbletea/v2"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Options say what is reviewed, and where.
type Options struct {
	Backend backend.Backend
	Changes backend.Changes
	Name    string       // of the sandbox
	Mount   string       // "" for the workspace
	Paths   []vpath.Path // and what lies below them; none: everything
	Again   []string     // as in Backend.View
	// Answer answers an ask that was shown; IsOfProject says that an answer may be for the project.
	Answer      func(ctx context.Context, name string, shown api.Ask, a api.Answer) error
	IsOfProject bool
	In, Out     *os.File // the terminal
	Getenv      func(string) string
}

// Run shows the changes until the person leaves, or ctx ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSource(ctx, o)
	defer s.close()
	return run(ctx, newModel(s, o), o.In, o.Out)
}

// run shows a model. A person who interrupts it has ended it. Errors: Canceled if the terminal is
// closed.
func run(ctx context.Context, m tea.Model, in, out *os.File) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(terminal{in, end}), tea.WithOutput(out)).Run()
	switch {
	case errors.Is(err, tea.ErrInterrupted):
		return nil
	case err != nil && errors.Is(context.Cause(ctx), errTerminalGone):
		return errTerminalGone
	}
	return err
}
