// Package shell implements the protocol of a session: it controls a POSIX shell that runs
// commands one after another and keeps its state between them.
//
// A command's output never reaches the output of a later command. A command can read or
// break the control channel of its shell, but can only forge its own exit code or end its
// session. The package starts no process and no goroutine.
package shell

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Argv returns the command line of the shell at a path.
func Argv(shell string) []string {
	switch path.Base(shell) {
	case "bash":
		return []string{shell, "--norc", "--noprofile", "--noediting", "-i"}
	case "zsh":
		return []string{shell, "--emulate", "sh", "-f", "-s", "-i"}
	}
	return []string{shell, "-i"}
}

// Pipes are the paths at which the shell opens the pipes of a command: its text, its
// standard output and its standard error.
type Pipes struct{ Text, Stdout, Stderr string }

// Conn is the outer end of a shell's control channel. One goroutine at a time
// may use it.
//
// The control channel is the shell's standard input and output. The shell is interactive,
// because only an interactive shell aborts the present command on SIGINT and continues,
// which ends a command without losing the state. busybox ash needs another signal, see
// Interrupts. Conn writes two lines for each command:
//
//	command trap - INT; command . TEXT </dev/null >|OUT 2>|ERR
//	command echo "TOKEN $?"
//
// TEXT, OUT and ERR are paths of pipes for this command only, so that background processes
// of a command write to its own pipes. The text is sourced, not evaluated: a shell reads it
// like a script, of any size, and `return` ends it. Meanwhile the shell keeps the control
// channel on descriptors above 9, which it closes in every program that it starts.
//
// The token is 128 random bits, new for each answer. So Conn does not mistake other data on
// the control channel for an answer, such as a prompt, or what a process wrote to it
// through /proc.
type Conn struct {
	in, out *os.File
	unread  []byte // data after the last answer
	ash     bool   // the shell is that of busybox
}

// NewConn takes ownership of the pipe from which the shell reads its commands and of the
// one to which it writes answers. Both must be pollable, as those of os.Pipe are.
func NewConn(in, out *os.File) *Conn { return &Conn{in: in, out: out} }

// Close closes the channel. A shell that waits for a command then ends.
func (c *Conn) Close() error { return errors.Join(c.in.Close(), c.out.Close()) }

// Token identifies an expected answer.
type Token string

// ErrClosed is wrapped by an error if the shell has closed the channel: it has ended, or
// has executed another program.
var ErrClosed = errors.New("the control channel is closed")

// setup makes the shell print no prompt and keep no history. It makes SIGTERM, which an
// interactive shell ignores, end the session. When busybox ash waits for a command, it
// mistakes the end of a job for the end of its input; with ignoreeof it continues, up to 50
// times between two commands.
const setup = `\command \unset HISTFILE MAIL MAILPATH; PS1= PS2= PROMPT_COMMAND=; ` +
	`\command \set -o ignoreeof; \command \trap '\exit 143' TERM; \command \echo "`

// isAsh answers 1 in busybox ash and 0 in other shells: it looks at the program that a
// subshell, which is a copy of the shell, executes.
const isAsh = ` $(\command \read -r map </proc/self/maps; case ${map##*/} in busybox*) \command \echo 1;; *) \command \echo 0;; esac)"`

// Greet prepares the shell and returns its pid in its own pid namespace.
func (c *Conn) Greet(ctx context.Context) (int, error) {
	pid, err := c.exchange(ctx, setup, ` $$"`)
	if err != nil {
		return 0, err
	}
	ash, err := c.exchange(ctx, `\command \echo "`, isAsh)
	c.ash = ash == 1
	return pid, err
}

// Interrupts returns the signals that make the shell abort its command, in the order to try.
// All shells abort it on SIGINT. But busybox ash jumps out of its signal handler, and if the C
// library holds a lock at that time, the shell waits for this lock forever. It looks for
// trapped signals between two commands only, so Run has it fail there on SIGURG. SIGINT remains
// for a command that resets the trap, catches the failure, or never ends a built-in command.
// Other shells and all programs ignore SIGURG unless they catch it.
func (c *Conn) Interrupts() []unix.Signal {
	if c.ash {
		return []unix.Signal{unix.SIGURG, unix.SIGINT}
	}
	return []unix.Signal{unix.SIGINT}
}

// Sync waits until the shell has done all earlier requests. It returns the error of Answer.
func (c *Conn) Sync(ctx context.Context) error {
	_, err := c.exchange(ctx, `\command \echo "`, ` 0"`)
	return err
}

func (c *Conn) exchange(ctx context.Context, before, after string) (int, error) {
	token := newToken()
	if err := c.say(before + string(token) + after + "\n"); err != nil {
		return 0, err
	}
	return c.Answer(ctx, token)
}

// failOnUrgent makes busybox ash fail on SIGURG, once. Between commands the signal must be
// ignored: ash would lose its next command.
const failOnUrgent, ignoreUrgent = `\command \trap '\command \trap - URG; { \: $((1/0)); } 2>/dev/null' URG; `, `; \command \trap - URG`

// Run makes the shell run a command. The answer to the token is the exit status.
func (c *Conn) Run(p Pipes) (Token, error) {
	before, after := "", ""
	if c.ash {
		before, after = failOnUrgent, ignoreUrgent
	}
	token := newToken()
	return token, c.say(before + `\command \trap - INT; \command \. ` + p.Text + ` </dev/null >|` + p.Stdout + ` 2>|` + p.Stderr + "\n" +
		`\command \echo "` + string(token) + ` $?"` + after + "\n")
}

func newToken() Token {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return Token(hex.EncodeToString(b[:]))
}

// writeTimeout limits a write that the shell does not read. A pipe has room for the few
// lines that the shell may not have read yet.
const writeTimeout = 5 * time.Second

func (c *Conn) say(line string) error {
	c.in.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.in.WriteString(line)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE):
		return errdefs.New(errdefs.Unavailable, "shell: %w", ErrClosed)
	}
	return errdefs.New(errdefs.Internal, "shell: control channel: %w", err)
}

// maxNoise is how much other data may precede an answer, in bytes.
const maxNoise = 1 << 20

// Answer waits for the answer to a token, a number. It discards the data before it.
//
// Errors: those wrapping ErrClosed (Unavailable); Internal, for too much noise; Deadline
// and Canceled, after which it may be called again.
func (c *Conn) Answer(ctx context.Context, token Token) (int, error) {
	c.out.SetReadDeadline(time.Time{})
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.out.SetReadDeadline(time.Unix(1, 0))
		close(stopped)
	})
	defer func() {
		if !stop() {
			<-stopped // otherwise it could end the next wait
		}
	}()
	buffer := make([]byte, 512)
	for noise := 0; ; {
		if number, ok := c.find(token); ok {
			return number, nil
		}
		n, err := c.out.Read(buffer)
		c.unread = append(c.unread, buffer[:n]...)
		noise += n
		switch {
		case noise > maxNoise:
			return 0, errdefs.New(errdefs.Internal, "shell: %d bytes of noise on the control channel", noise)
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, gaveUp(ctx)
		case errors.Is(err, io.EOF):
			return 0, errdefs.New(errdefs.Unavailable, "shell: %w", ErrClosed)
		default:
			return 0, errdefs.New(errdefs.Internal, "shell: control channel: %w", err)
		}
	}
}

// gaveUp returns the error for a wait that ctx has ended.
func gaveUp(ctx context.Context) error {
	kind := errdefs.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = errdefs.Deadline
	}
	return errdefs.New(kind, "shell: no answer: %w", ctx.Err())
}

// find removes "TOKEN NUMBER\n" and everything before it from unread. Without it, find
// drops all lines except the last, which may be incomplete.
func (c *Conn) find(token Token) (int, bool) {
	for {
		line, rest, whole := bytes.Cut(c.unread, []byte("\n"))
		if !whole {
			return 0, false
		}
		c.unread = append(c.unread[:0], rest...)
		at := bytes.Index(line, []byte(token))
		if at < 0 {
			continue
		}
		field := bytes.TrimPrefix(line[at+len(token):], []byte(" "))
		if number, err := strconv.ParseUint(string(field), 10, 31); err == nil {
			return int(number), true
		}
	}
}
