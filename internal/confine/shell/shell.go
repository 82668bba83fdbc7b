// Package shell is the protocol of a session: it controls a POSIX shell that runs one command after
// another and keeps its state between them.
//
// A command's output never reaches the output of a later command. A command can read or break the
// control channel of its own shell; it gains no more than to forge its own exit code, or to end its
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

// Argv returns the command line that starts the shell at a path.
func Argv(shell string) []string {
	switch path.Base(shell) {
	case "bash":
		return []string{shell, "--norc", "--noprofile", "--noediting", "-i"}
	case "zsh":
		return []string{shell, "--emulate", "sh", "-f", "-s", "-i"}
	}
	return []string{shell, "-i"}
}

// Pipes are the paths by which the shell opens the pipes of a command: its
// text, and where its output and its errors go.
type Pipes struct{ Text, Stdout, Stderr string }

// Conn is the outer end of a shell's control channel. One goroutine at a time
// may use it.
//
// The control channel is the shell's standard input and output. The shell is started as an
// interactive one, because only an interactive shell gives up what it is doing on SIGINT and goes
// on: that is how a command is ended while the state stays. It is given two lines for each command:
//
//	command trap - INT; command . TEXT </dev/null >|OUT 2>|ERR
//	command echo "TOKEN $?"
//
// TEXT, OUT and ERR are paths of pipes made for this command alone, so what a command leaves
// running writes into its own pipes. The text is sourced, not evaluated: a shell reads it as it
// reads a script, of any size, and `return` ends it. While it runs, the shell keeps the control
// channel on descriptors above 9, which are closed in every program that it starts.
//
// The token is 128 random bits, made for each answer. What else arrives on the control channel, a
// prompt or what a process wrote into it through /proc, is not taken for an answer.
type Conn struct {
	in, out *os.File
	unread  []byte // what came after the last answer
}

// NewConn takes over the pipe that the shell reads its commands from and the
// one that it answers on. Both must be pollable, as those of os.Pipe are.
func NewConn(in, out *os.File) *Conn { return &Conn{in: in, out: out} }

// Close closes the channel. A shell that waits for a command ends then.
func (c *Conn) Close() error { return errors.Join(c.in.Close(), c.out.Close()) }

// Token names an answer that is awaited.
type Token string

// ErrClosed is what an error wraps when the shell has closed the channel: it has
// ended, or has become another program.
var ErrClosed = errors.New("the control channel is closed")

// greeting makes the shell quiet and has it keep no history. An interactive
// shell ignores SIGTERM; a session is to end by it. busybox ash takes a job's
// end for the end of its input when it waits for a command, and with ignoreeof
// goes on, 50 times between two commands.
const greeting = `\command \unset HISTFILE MAIL MAILPATH; PS1= PS2= PROMPT_COMMAND=; ` +
	`\command \set -o ignoreeof; \command \trap '\exit 143' TERM; \command \echo "`

// Greet prepares the shell and returns its pid, as it sees it itself.
func (c *Conn) Greet(ctx context.Context) (int, error) {
	return c.exchange(ctx, greeting, ` $$"`)
}

// Sync returns when the shell has done all that was asked of it before, or the
// error of Answer.
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

// Run has the shell run a command. Its exit status is the answer to the token.
func (c *Conn) Run(p Pipes) (Token, error) {
	token := newToken()
	return token, c.say(`\command \trap - INT; \command \. ` + p.Text + ` </dev/null >|` + p.Stdout + ` 2>|` + p.Stderr + "\n" +
		`\command \echo "` + string(token) + ` $?"` + "\n")
}

func newToken() Token {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return Token(hex.EncodeToString(b[:]))
}

// sayPatience bounds a write that the shell does not take. The few lines it can
// be behind by fit into a pipe.
const sayPatience = 5 * time.Second

func (c *Conn) say(line string) error {
	c.in.SetWriteDeadline(time.Now().Add(sayPatience))
	_, err := c.in.WriteString(line)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE):
		return errdefs.New(errdefs.Unavailable, "shell: %w", ErrClosed)
	}
	return errdefs.New(errdefs.Internal, "shell: control channel: %w", err)
}

// maxNoise bounds what may come before an answer, in bytes.
const maxNoise = 1 << 20

// Answer waits for the answer to a token, a number. What comes before it is
// thrown away.
//
// Errors: those wrapping ErrClosed (Unavailable); Internal, for too much noise;
// Deadline and Canceled, after which it may be asked again.
func (c *Conn) Answer(ctx context.Context, token Token) (int, error) {
	c.out.SetReadDeadline(time.Time{})
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.out.SetReadDeadline(time.Unix(1, 0))
		close(stopped)
	})
	defer func() {
		if !stop() {
			<-stopped // else it could stop the next wait
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

// gaveUp is the error for a wait that ctx has ended.
func gaveUp(ctx context.Context) error {
	kind := errdefs.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = errdefs.Deadline
	}
	return errdefs.New(kind, "shell: no answer: %w", ctx.Err())
}

// find takes "TOKEN NUMBER\n" off what was read, with all before it. Lines
// without it are dropped; the last one may not be whole yet.
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
