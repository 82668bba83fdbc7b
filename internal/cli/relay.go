package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// forwarded are the signals that reach the command instead of ending us.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
}

// execute runs command through client with our own standard streams: by a
// terminal of its own when ours are a terminal, else by fresh pipes. No
// descriptor of ours enters the sandbox: one of a file could be reopened
// through /proc/self/fd with wider rights.
func (e *env) execute(ctx context.Context, client *api.Client, command api.Command) (api.Exit, error) {
	if e.interactive() {
		return e.executeTerminal(ctx, client, command)
	}
	return e.executePipes(ctx, client, command)
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

func (e *env) executePipes(ctx context.Context, client *api.Client, command api.Command) (api.Exit, error) {
	var inside, outside [3]*os.File
	for i := range inside {
		r, w, err := os.Pipe()
		if err != nil {
			return api.Exit{}, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
		}
		inside[i], outside[i] = w, r
		if i == 0 {
			inside[i], outside[i] = r, w
		}
		defer r.Close()
		defer w.Close()
	}
	running, err := client.Exec(ctx, command, inside[:]...)
	for _, f := range inside {
		f.Close()
	}
	if err != nil {
		return api.Exit{}, err
	}
	defer forwardSignals(func(s unix.Signal) { running.Signal(s) })()
	go func() {
		_, _ = io.Copy(outside[0], e.input()) // a command that reads no more is its own affair
		outside[0].Close()
	}()
	out := api.CopyOutput(e.stdout, outside[1])
	errs := api.CopyOutput(e.stderr, outside[2])
	exit, err := running.Wait(ctx)
	out.Finish()
	errs.Finish()
	return exit, err
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

func (e *env) executeTerminal(ctx context.Context, client *api.Client, command api.Command) (api.Exit, error) {
	fd := int(e.stdin.Fd())
	command.TTY = true
	if columns, rows, err := term.GetSize(fd); err == nil {
		command.Rows, command.Columns = uint16(rows), uint16(columns)
	}
	running, err := client.Exec(ctx, command)
	if err != nil {
		return api.Exit{}, err
	}
	defer running.Terminal.Close()
	state, err := term.MakeRaw(fd)
	if err != nil {
		return api.Exit{}, errdefs.New(errdefs.Internal, "terminal: %w", err)
	}
	defer term.Restore(fd, state)
	defer forwardSignals(func(s unix.Signal) { running.Signal(s) })()
	defer followWindow(e.stdin, func(size *unix.Winsize) {
		unix.IoctlSetWinsize(int(running.Terminal.Fd()), unix.TIOCSWINSZ, size)
	})()
	go func() { // ends with this process
		if _, err := io.Copy(running.Terminal, e.input()); hungUp(err) {
			running.Signal(unix.SIGHUP) // the kernel tells those alone whom the terminal controls
		}
	}()
	out := api.CopyOutput(e.stdout, running.Terminal)
	exit, err := running.Wait(ctx)
	out.Finish()
	return exit, err
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
