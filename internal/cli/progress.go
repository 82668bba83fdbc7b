package cli

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

const (
	// progressAfter is how long something takes before it shows progress.
	progressAfter = time.Second
	// progressEvery is how often it is shown anew.
	progressEvery = 200 * time.Millisecond
)

// progress shows on one line of a terminal how far something is. A nil one
// shows nothing.
type progress struct {
	out   io.Writer
	doing string
	since time.Time
	ticks <-chan time.Time

	tried, total atomic.Int64
	quit, gone   chan struct{}
}

// progress says on stderr, where that is a terminal, what we are doing, once
// it has taken a while. The caller must stop it before anything else is
// printed.
func (e *env) progress(doing string) *progress {
	if !term.IsTerminal(int(e.stderr.Fd())) {
		return nil
	}
	ticker := time.NewTicker(progressEvery)
	return startProgress(e.stderr, doing, time.Now(), ticker.C)
}

// progressUnless is progress where the output is not for a person.
func (e *env) progressUnless(quiet bool, doing string) *progress {
	if quiet {
		return nil
	}
	return e.progress(doing)
}

func startProgress(out io.Writer, doing string, since time.Time, ticks <-chan time.Time) *progress {
	p := &progress{out: out, doing: doing, since: since, ticks: ticks, quit: make(chan struct{}), gone: make(chan struct{})}
	go p.run()
	return p
}

// count says that so many of all things have been tried.
func (p *progress) count(tried, total int) {
	if p == nil {
		return
	}
	p.tried.Store(int64(tried))
	p.total.Store(int64(total))
}

// stop takes the line away. Stopping again does nothing.
func (p *progress) stop() {
	if p == nil {
		return
	}
	select {
	case <-p.gone:
	default:
		close(p.quit)
		<-p.gone
	}
}

func (p *progress) run() {
	defer close(p.gone)
	width := 0
	for {
		select {
		case now := <-p.ticks:
			if taken := now.Sub(p.since); taken >= progressAfter {
				width = p.draw(p.text(taken), width)
			}
		case <-p.quit:
			if width > 0 {
				p.draw("", width)
				fmt.Fprint(p.out, "\r")
			}
			return
		}
	}
}

// draw writes text over what stands on the line, width columns, and returns
// how many stand there then.
func (p *progress) draw(text string, width int) int {
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", max(0, width-len(text))))
	return len(text)
}

func (p *progress) text(taken time.Duration) string {
	text := fmt.Sprintf("agentfense: %s, %d s", p.doing, int(taken.Seconds()))
	if total := p.total.Load(); total > 0 {
		text += fmt.Sprintf(", %d of %d", p.tried.Load(), total)
	}
	return text
}
