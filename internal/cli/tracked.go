package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
)

// gitPatience bounds the look at git's history, summaryPatience how long the
// summary of a run waits for its end.
const (
	gitPatience     = 5 * time.Second
	summaryPatience = 500 * time.Millisecond
)

// trackedJSON is in JSON documents what git keeps of hidden files.
type trackedJSON struct {
	Index     []string `json:"index"`   // escaped
	History   []string `json:"history"` // escaped
	Unchecked string   `json:"unchecked,omitempty"`
}

func trackedJSONOf(t gitview.Tracked) *trackedJSON {
	if t.IsZero() {
		return nil
	}
	doc := &trackedJSON{Index: []string{}, History: []string{}, Unchecked: vpath.Escape(t.Unchecked)}
	for _, p := range t.Index {
		doc.Index = append(doc.Index, vpath.Escape(string(p)))
	}
	for _, p := range t.History {
		doc.History = append(doc.History, vpath.Escape(string(p)))
	}
	return doc
}

// trackedLines says for people what git keeps of hidden files.
func trackedLines(t gitview.Tracked) []string {
	var lines []string
	if len(t.Index) > 0 {
		lines = append(lines, fmt.Sprintf("git tracks %s the policy hides: %s", plural(len(t.Index), "file")+" that", someOf(t.Index)))
	}
	if len(t.History) > 0 {
		lines = append(lines, fmt.Sprintf("git's history has %s the policy hides: %s", plural(len(t.History), "file")+" that", someOf(t.History)))
	}
	if len(lines) > 0 {
		lines = append(lines, "the content of these files is readable inside from git's objects (git show); to hide it: --hide .git/, or --git=clean for a history without them")
	}
	if t.Unchecked != "" {
		lines = append(lines, fmt.Sprintf("git's history was not fully checked for hidden files: %s", vpath.Escape(t.Unchecked)))
	}
	return lines
}

// someOf names the first of the paths.
func someOf(paths []vpath.Path) string {
	var names []string
	for _, p := range paths[:min(len(paths), maxNotes)] {
		names = append(names, shown(p))
	}
	if n := len(paths) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("… and %d more", n))
	}
	return strings.Join(names, ", ")
}

// printTracked prints the notes of policy check and policy explain.
func printTracked(w io.Writer, t gitview.Tracked) error {
	for _, line := range trackedLines(t) {
		if _, err := fmt.Fprintf(w, "note: %s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// gitLook is a look at the repository of a sandbox's source that goes on while
// a command runs.
type gitLook struct {
	cancel context.CancelFunc
	done   chan struct{}
	found  gitview.Tracked
	seen   func() error
	err    error
	told   bool
}

// startGitLook begins to look.
func startGitLook(ctx context.Context, b backend.Backend, sb backend.Sandbox) *gitLook {
	ctx, cancel := context.WithCancel(ctx)
	l := &gitLook{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.found, l.seen, l.err = b.LookAtGit(ctx, sb)
	}()
	return l
}

// end stops looking and waits for git to be gone.
func (l *gitLook) end() {
	l.cancel()
	<-l.done
}

// tell says what was found, once, if the look ends within the time.
func (l *gitLook) tell(e *env, within time.Duration) error {
	if l.told {
		return nil
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-l.done:
	default:
		select {
		case <-l.done:
		case <-timer.C:
			return nil
		}
	}
	l.told = true
	if l.err != nil {
		return l.err
	}
	for _, line := range trackedLines(l.found) {
		e.say("%s", line)
	}
	return l.seen()
}
