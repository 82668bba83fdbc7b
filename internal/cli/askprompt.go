package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// prompter asks the person at a terminal on which a command may run.
//
// What the command writes waits meanwhile, and what is typed does not reach it. The answer to allow
// has a random word that the question shows: the command can neither know it before, nor have it
// typed by accident or by the terminal, which answers some control sequences as if typed.
type prompter struct {
	in, out *os.File // the terminal
	screen  *screen
	cooked  *term.State // how the terminal was before the command got it; nil if it has another, or none
	isOwn   bool        // nothing else reads in
	running backend.Attached
	asking  atomic.Bool // what is typed is an answer
	typed   chan []byte // has what was typed while asking
	redraw  func()      // makes the command draw its screen again; nil if it has none
	// isOfProject says that an answer may be for the project.
	isOfProject bool
}

func newPrompter(in, out *os.File) *prompter {
	return &prompter{in: in, out: out, screen: &screen{}, typed: make(chan []byte, 1)}
}

// flushPause is how long a terminal may take to answer what the command has asked it.
const flushPause = 100 * time.Millisecond

// ask puts a question and returns the answer, which is false if the question is over before.
func (p *prompter) ask(ctx context.Context, name string, a api.Ask) (api.Answer, bool) {
	p.screen.settle()
	defer p.screen.mu.Unlock()
	p.asking.Store(true)
	defer p.asking.Store(false)
	defer p.suspend()()
	if p.isOwn {
		defer p.read()()
	}
	word := present.AskWord()
	choices := present.Choices(a, p.isOfProject)
	fmt.Fprint(p.out, question(name, a, word, choices))
	select {
	case <-ctx.Done():
		fmt.Fprint(p.out, "\nagentfense: the question is over\n")
		return api.Answer{}, false
	case line := <-p.typed:
		answer, _ := present.AllowingAnswer(string(line), word, choices)
		answer.ID = a.ID
		fmt.Fprintf(p.out, "agentfense: %s\n", present.AnswerText(answer))
		return answer, true
	}
}

// suspend takes the terminal from the command until the returned function is called.
func (p *prompter) suspend() (resume func()) {
	fd := int(p.in.Fd())
	full := p.screen.modes.isFull()
	fmt.Fprint(p.out, calm+p.screen.modes.sequences(false))
	var theirs *term.State
	if p.cooked != nil {
		theirs, _ = term.GetState(fd)  // a terminal that is gone answers nothing
		_ = term.Restore(fd, p.cooked) // the same
		time.Sleep(flushPause)         // for the terminal's own answers
		_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
	}
	p.forget()
	return func() {
		if theirs != nil {
			_ = term.Restore(fd, theirs)
			_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
		}
		fmt.Fprint(p.out, p.screen.modes.sequences(true))
		if full && p.redraw != nil {
			p.redraw()
		}
	}
}

// read reads the terminal until the returned function is called.
func (p *prompter) read() (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.relayInput(p.in) // without it the question ends without an answer
	}()
	return func() {
		_ = p.in.SetReadDeadline(time.Now()) // openTerminal made it so that it has one
		<-done
		_ = p.in.SetReadDeadline(time.Time{})
	}
}

// openTerminal opens the terminal that controls this process; nil if there is none, or we are in
// its background.
func openTerminal() *os.File {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "/dev/tty")
}

// forget drops what was typed before the question was there.
func (p *prompter) forget() {
	for {
		select {
		case <-p.typed:
		default:
			return
		}
	}
}

// question is what a person reads. All names are escaped.
func question(name string, a api.Ask, word string, choices []present.Choice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nagentfense: %s.\n  %s\n", present.AskTitle(name, a), present.AskLine(a))
	for _, c := range choices {
		fmt.Fprintf(&b, "  %s: type %s%s\n", c.Text, word, c.Suffix)
	}
	left := max(0, time.Until(a.Until)).Round(time.Second)
	fmt.Fprintf(&b, "  Refuse it: type anything else. In %s it is refused.\n> ", left)
	return b.String()
}

// relayInput copies what is typed to the command, or takes it as an answer.
func (p *prompter) relayInput(from io.Reader) error {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			switch {
			case p.asking.Load():
				select {
				case p.typed <- append([]byte(nil), buf[:n]...):
				default: // typed ahead of the next question
				}
			case p.running != nil:
				if _, failed := p.running.Write(buf[:n]); failed != nil {
					return failed
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// streams are those of a command here.
type streams struct {
	input          io.Reader
	stdout, stderr io.Writer
	prompter       *prompter // sees what is typed; nil: nothing does
}

// copyInput copies the input to the command.
func (s *streams) copyInput(running backend.Attached) error {
	if s.prompter != nil {
		return s.prompter.relayInput(s.input)
	}
	_, err := io.Copy(running, s.input)
	return err
}

// answerAsks answers what the sandbox asks while a command runs in it, until the returned function
// is called. cooked is how our terminal was before the command got it, nil if the command has
// pipes.
func (e *env) answerAsks(ctx context.Context, b backend.Backend, sb backend.Sandbox, running backend.Attached, cooked *term.State, s *streams) (end func()) {
	if sb.Record.Ask == nil {
		return func() {}
	}
	p := e.prompterFor(sb, running, cooked)
	if p == nil {
		return e.startAsker(ctx, b, sb, nil)
	}
	s.stdout, s.stderr = p.screen.writer(s.stdout), p.screen.writer(s.stderr)
	if !p.isOwn {
		s.prompter = p
	}
	stop := e.startAsker(ctx, b, sb, p.ask)
	return func() {
		stop()
		p.close()
	}
}

// prompterFor returns what asks on our terminal while a command runs; nil without a terminal.
func (e *env) prompterFor(sb backend.Sandbox, running backend.Attached, cooked *term.State) *prompter {
	var p *prompter
	foreground, err := isForeground(e.stdin)
	if e.canAsk() && foreground && err == nil {
		p = newPrompter(e.stdin, e.stderr)
	} else if p = newOwnPrompter(); p == nil {
		return nil
	}
	p.running, p.cooked, p.isOfProject = running, cooked, isOfProject(sb)
	if cooked != nil {
		p.redraw = func() { redraw(e.stdin, running) }
	}
	return p
}

// newOwnPrompter returns a prompter at a terminal that it opens itself; nil without one.
func newOwnPrompter() *prompter {
	tty := openTerminal()
	if tty == nil {
		return nil
	}
	p := newPrompter(tty, tty)
	p.isOwn = true
	return p
}

// close lets the terminal go.
func (p *prompter) close() {
	if p.isOwn {
		p.in.Close()
	}
}

// redrawPause is between two changes of a window's size. A program that looks at it less often
// would see none.
const redrawPause = 50 * time.Millisecond

// redraw makes a command draw its screen again, by another size for a moment.
func redraw(terminal *os.File, running backend.Attached) {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	running.Resize(max(1, size.Row-1), size.Col)
	time.Sleep(redrawPause)
	running.Resize(size.Row, size.Col)
}
