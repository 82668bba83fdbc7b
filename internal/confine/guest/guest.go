// Package guest runs commands inside a sandbox on the supervisor's behalf.
//
// Inside, the binary has two roles. Main is PID 1: it takes requests from a socket, starts
// a leader for each exec and reaps orphaned processes. ExecMain is such a leader: it starts
// one command and reports how it ends. Outside, Conn is the supervisor's end.
//
// Everything that Conn receives is hostile input: messages have a fixed form and order,
// descriptors are refused, and the host pid of a leader comes from the kernel
// (SCM_CREDENTIALS), not from the message. The connection to a peer that breaks these rules
// is closed.
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

// The first arguments that select a role inside.
const (
	InitVerb = "__guest" // Main
	ExecVerb = "__exec"  // ExecMain
)

// socketFD is the descriptor of the socket, for leaders and mostly for PID 1.
const socketFD = 3

// The errors of Exec wrap one of these if the command could not be started.
var (
	// ErrNotFound means that the command does not exist (a shell's status 127).
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable means that the command exists but cannot be executed (a shell's
	// status 126).
	ErrNotExecutable = errors.New("cannot execute")
	// ErrDirectory means that the working directory cannot be entered.
	ErrDirectory = errors.New("cannot enter directory")
)

// Command is a command to run inside.
type Command struct {
	Argv []string // the name, looked up in PATH of Env unless it has a slash, and the arguments
	Env  []string // the whole environment, as KEY=VALUE
	Dir  string   // absolute; empty means "/"
	// TTY is the number N of /dev/pts/N inside, which becomes the controlling terminal and
	// all three streams. Negative means no terminal.
	TTY int
	// Files are stdin, stdout and stderr without a terminal: ends of anonymous pipes; nil
	// means /dev/null. The caller closes them.
	Files [3]*os.File
	// Umask is the file mode creation mask; zero stands for 022.
	Umask int
	// ReuseLeader lets the leader wait a while for another command when no process of this
	// one is left. That saves starting a leader, half of the time of a short command. The
	// leader must not be in a control group that is only for this command.
	ReuseLeader bool
}

// Exit says how a command ended.
type Exit struct {
	Code        int           // exit status; 0 if a signal ended it
	Signal      int           // the signal that ended it, or 0
	UserTime    time.Duration // of the command and the descendants that it waited for
	SystemTime  time.Duration
	MaxRSSBytes int64 // of the largest of these processes
}

// maxPayload is the maximum encoded size of a command's arguments, environment and
// directory, in bytes. The kernel's limit (a quarter of the stack limit, at most 6 MiB;
// execve(2)) is lower.
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
				return errdefs.New(errdefs.Invalid, "exec: %q contains a NUL byte", s)
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
