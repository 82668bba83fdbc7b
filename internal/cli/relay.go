package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// forwarded are the signals that reach the command instead of ending us.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
}

// interactive reports whether the command gets a terminal: all three streams
// are one, and we are not in its background.
func (e *env) interactive() bool {
	for _, f := range []*os.File{e.stdin, e.stdout, e.stderr} {
		if !term.IsTerminal(int(f.Fd())) {
			return false
		}
	}
	foreground, err := isForeground(e.stdin)
	return foreground && err == nil
}

// attach runs a command with our own standard streams: by a terminal of its own when
// ours are a terminal, else by fresh pipes.
func (e *env) attach(ctx context.Context, b backend.Backend, live backend.Live, sb backend.Sandbox, c backend.Command) (backend.Exit, error) {
	onTerminal := e.interactive()
	fd := int(e.stdin.Fd())
	if onTerminal {
		c.Rows, c.Columns = 24, 80
		if columns, rows, err := term.GetSize(fd); err == nil && columns > 0 && rows > 0 {
			c.Rows, c.Columns = uint16(rows), uint16(columns)
		}
	}
	running, err := live.Attach(ctx, c)
	if err != nil {
		return backend.Exit{}, err
	}
	var cooked *term.State
	if onTerminal {
		if cooked, err = term.MakeRaw(fd); err != nil {
			return backend.Exit{}, errdefs.New(errdefs.Internal, "terminal: %w", err)
		}
		defer term.Restore(fd, cooked)
		defer followWindow(e.stdin, func(size *unix.Winsize) { running.Resize(size.Row, size.Col) })()
	}
	s := streams{input: e.input(), stdout: e.stdout, stderr: e.stderr}
	defer e.answerAsks(ctx, b, sb, running, cooked, &s)()
	defer forwardSignals(running.Signal)()
	go func() { // ends with this process
		err := s.copyInput(running) // a command that reads no more is its own affair
		switch {
		case !onTerminal:
			running.CloseInput()
		case hungUp(err):
			running.Signal(unix.SIGHUP) // the kernel tells those alone whom the terminal controls
		}
	}()
	return running.Wait(s.stdout, s.stderr)
}

// forwardSignals sends ours to the command until the returned function is
// called.
func forwardSignals(send func(unix.Signal)) func() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				send(s.(unix.Signal))
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// hungUp reports whether copying from a terminal ended with err because the
// terminal is gone.
func hungUp(err error) bool {
	pe := (*fs.PathError)(nil)
	return err == nil || errors.As(err, &pe) && pe.Op == "read"
}

// followWindow passes changes of our window's size on.
func followWindow(ours *os.File, pass func(*unix.Winsize)) func() {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-changes:
				if size, err := unix.IoctlGetWinsize(int(ours.Fd()), unix.TIOCGWINSZ); err == nil {
					pass(size)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(changes)
		close(done)
	}
}
