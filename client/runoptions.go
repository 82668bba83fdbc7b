package client

import (
	"io"
	"time"
)

// WithTimeout ends the command after a while, with ErrTimeout. Without it: as
// the server has it; of Attach: never.
func WithTimeout(after time.Duration) interface {
	RunOption
	AttachOption
	SessionRunOption
} {
	return option(func(s *settings) { s.timeout = after })
}

// WithEnv adds to the environment of the command, or of the session; of a sandbox that
// is made, of all its commands and sessions, which may be given others. The server
// keeps those and tells their names, never their values. A second one replaces the first.
func WithEnv(env map[string]string) interface {
	SandboxOption
	RunOption
	AttachOption
	SessionOption
} {
	return option(func(s *settings) { s.env = env })
}

// WithWorkdir is the directory in which the command starts. Without it: the
// workspace, from which a relative one starts.
func WithWorkdir(dir string) interface {
	RunOption
	AttachOption
} {
	return option(func(s *settings) { s.workdir = dir })
}

// WithDetach lets the command go on when the caller's context ends, and when
// the server does.
func WithDetach() interface {
	RunOption
	AttachOption
	SessionRunOption
} {
	return option(func(s *settings) { s.detach = true })
}

// WithShell is the shell of a session. Without it: /bin/sh.
func WithShell(path string) SessionOption {
	return option(func(s *settings) { s.shell = path })
}

// WithStdin is the standard input. Without it a command's is at its end, and that
// of Attach is AttachedExec.Stdin. Of what is not in memory the content is sent as it is
// read; then it is WithTimeout and the context alone that bound the command.
func WithStdin(from io.Reader) interface {
	RunOption
	AttachOption
} {
	return option(func(s *settings) { s.stdin = from })
}

// WithStdout takes the standard output; without it that is AttachedExec.Stdout. An error
// of it ends the command.
func WithStdout(to io.Writer) interface {
	AttachOption
	ResumeOption
} {
	return option(func(s *settings) { s.stdout = to })
}

// WithStderr takes the standard error; without it that is AttachedExec.Stderr. An error
// of it ends the command.
func WithStderr(to io.Writer) interface {
	AttachOption
	ResumeOption
} {
	return option(func(s *settings) { s.stderr = to })
}

// WithTerminal gives the program a terminal of this size; all its output then is
// standard output.
func WithTerminal(rows, columns uint16) AttachOption {
	return option(func(s *settings) { s.terminal, s.rows, s.columns = true, rows, columns })
}

// WithOffsets leaves out what was received already: the bytes of AttachedExec.Offsets.
func WithOffsets(stdout, stderr int64) ResumeOption {
	return option(func(s *settings) { s.stdoutFrom, s.stderrFrom = stdout, stderr })
}

// WithFollow goes on with the records to come, until the sandbox is destroyed or
// the context ends.
func WithFollow() AuditOption {
	return option(func(s *settings) { s.follow = true })
}

// WithEvents tells only of events of these kinds: "permission_denied", …
func WithEvents(kinds ...string) AuditOption {
	return option(func(s *settings) { s.events = append(s.events, kinds...) })
}

// WithAfterSeq tells only of records behind the number seq.
func WithAfterSeq(seq uint64) AuditOption {
	return option(func(s *settings) { s.after = seq })
}

// WithSince tells only of what happened at or after a time.
func WithSince(at time.Time) AuditOption {
	return option(func(s *settings) { s.since = at })
}
