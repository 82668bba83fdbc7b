// Package guest runs commands inside a sandbox on the supervisor's behalf.
//
// Inside, the binary plays two parts. Main is PID 1: it takes requests from a socket, starts a
// leader for each and reaps what is left behind. ExecMain is such a leader: it starts one command
// and reports how it ends. Outside, Conn is the supervisor's end.
//
// Everything that Conn receives is hostile input: messages have a fixed form and order, descriptors
// are refused, and the host pid of a leader is what the kernel reports (SCM_CREDENTIALS), not the
// sender. A peer that breaks these rules is cut off.
//
// The socket is a SOCK_SEQPACKET pair. Each exec has its own pair, which the supervisor makes and
// sends in with the command's pipes. Descriptors travel inward only: pipes and these sockets.
package guest

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// The first argument that makes the binary play a part inside.
const (
	InitVerb = "__guest" // Main
	ExecVerb = "__exec"  // ExecMain
)

// socketFD is the descriptor of the socket, for leaders and mostly for PID 1.
const socketFD = 3

// What the errors of Exec wrap when the command could not be started.
var (
	// ErrNotFound means there is no such command (a shell's status 127).
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable means it is there and cannot be run (a shell's 126).
	ErrNotExecutable = errors.New("cannot execute")
	// ErrDirectory means that the working directory cannot be entered.
	ErrDirectory = errors.New("cannot enter directory")
)

// Command is a command to run inside.
type Command struct {
	Argv []string // the name, looked up in PATH of Env unless it has a slash, and the arguments
	Env  []string // the whole environment, as KEY=VALUE
	Dir  string   // absolute; empty means "/"
	// TTY is the number N of /dev/pts/N inside, to be the controlling terminal
	// and all three streams; negative means none.
	TTY int
	// Files are stdin, stdout and stderr without a terminal: ends of
	// anonymous pipes; nil means /dev/null. They stay the caller's.
	Files [3]*os.File
	// Umask is the file mode creation mask; zero stands for 022.
	Umask int
	// Rest lets the leader wait a little for another command once nothing of
	// this one is left, which saves its start: half of what a short command
	// takes. It must be in no control group of the command's own.
	Rest bool
}

// Exit says how a command ended.
type Exit struct {
	Code        int           // exit status; 0 if a signal ended it
	Signal      int           // the signal that ended it, or 0
	UserTime    time.Duration // of the command and the descendants it waited for
	SystemTime  time.Duration
	MaxRSSBytes int64 // of the largest of these processes
}

// maxPayload bounds what a command's arguments, environment and directory take
// on the wire, in bytes. The kernel's own bound (a quarter of the stack limit,
// at most 6 MiB; execve(2)) is below it.
const maxPayload = 8 << 20

func (c Command) check() error {
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return errdefs.New(errdefs.Invalid, "exec: no command")
	case c.Dir != "" && c.Dir[0] != '/':
		return errdefs.New(errdefs.Invalid, "exec: directory %q is not absolute", c.Dir)
	}
	for _, list := range [][]string{c.Argv, c.Env, {c.Dir}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return errdefs.New(errdefs.Invalid, "exec: %q holds a NUL", s)
			}
		}
	}
	for _, f := range c.Files {
		if f != nil {
			if err := CheckPipe(f); err != nil {
				return err
			}
		}
	}
	return nil
}
