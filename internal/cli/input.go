package cli

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// input is what a command gets as its standard input: ours.
func (e *env) input() io.Reader {
	if term.IsTerminal(int(e.stdin.Fd())) {
		return terminalInput{e.stdin}
	}
	return e.stdin
}

// isForeground reports whether we are not in the background of a terminal, where
// changing it or reading it would stop us. One that does not control us (ENOTTY,
// ioctl_tty(2)) has no background.
func isForeground(terminal *os.File) (bool, error) {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	if errors.Is(err, unix.ENOTTY) {
		return true, nil
	}
	return group == unix.Getpgrp(), err
}

// backgroundPause is how often one who has been typed something in our background
// looks whether that is for us by now.
const backgroundPause = 100 * time.Millisecond

// terminalInput reads a terminal while we are in its foreground: what is typed at
// other times is another's, and the command inside may want no input at all.
type terminalInput struct{ file *os.File }

func (t terminalInput) Read(b []byte) (int, error) {
	for {
		_, _ = pollfd.Wait(int(t.file.Fd()), unix.POLLIN, -1) // what is wrong, the read says
		if foreground, err := isForeground(t.file); foreground || err != nil {
			return t.file.Read(b)
		}
		time.Sleep(backgroundPause)
	}
}
