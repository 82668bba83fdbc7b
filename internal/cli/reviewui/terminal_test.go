package reviewui

import (
	"errors"
	"io"
	"testing"

	"github.com/creack/pty"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// A review ends when its terminal is closed, also if it gets no signal.
func TestAReviewEndsWithItsTerminal(t *testing.T) {
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	f := &fake{texts: map[vpath.Path]string{}}
	o := Options{Backend: f, Changes: changesOf{fake: f}, Name: "fix", In: terminal, Out: terminal, Getenv: func(string) string { return "" }}
	ended := make(chan error, 1)
	go func() { ended <- Run(t.Context(), o) }()
	if _, err := io.ReadAtLeast(screen, make([]byte, 1<<10), 1); err != nil {
		t.Fatal(err)
	}
	if err := screen.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errTerminalGone) || !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
