package client

import (
	"io"
	"time"
)

// WithTimeout ends the command after this time, with ErrTimeout. Default: as the server is
// configured; for Attach no time-out.
func WithTimeout(after time.Duration) interface {
	RunOption
	AttachOption
	SessionRunOption
} {
	return option(func(s *settings) { s.timeout = after })
}

// WithEnv adds variables to the environment of a command or session. For a new sandbox it adds them
// to all its commands and sessions, which may override them; the server stores these, and returns
// their names but never their values. A second WithEnv replaces the first.
func WithEnv(env map[string]string) interface {
	SandboxOption
	RunOption
	AttachOption
	SessionOption
} {
	return option(func(s *settings) { s.env = env })
}

// WithWorkdir sets the working directory of the command; a relative one is below the workspace.
// Default: the workspace.
func WithWorkdir(dir string) interface {
	RunOption
	AttachOption
} {
	return option(func(s *settings) { s.workdir = dir })
}

// WithDetach lets the command continue when the caller's context ends, and when the server stops.
func WithDetach() interface {
	RunOption
	AttachOption
	SessionRunOption
} {
	return option(func(s *settings) { s.detach = true })
}

// WithCheckpoint takes a snapshot of the sandbox before the command. Restore goes back to it by
// "@{1}", until the next such command.
func WithCheckpoint() interface {
	RunOption
	AttachOption
} {
	return option(func(s *settings) { s.checkpoint = true })
}

// WithShell sets the shell of a session. Default: /bin/sh.
func WithShell(path string) SessionOption {
	return option(func(s *settings) { s.shell = path })
}

// WithStdin sets the standard input. Without it a command gets end of file, and a program of Attach
// gets AttachedExec.Stdin. A reader that is not in memory is sent while it is read; then only
// WithTimeout and the context limit the time of the command.
func WithStdin(from io.Reader) interface {
	RunOption
	AttachOption
} {
	return option(func(s *settings) { s.stdin = from })
}

// WithStdout writes the standard output to w instead of AttachedExec.Stdout. An error of w ends the
// command.
func WithStdout(to io.Writer) interface {
	AttachOption
	ResumeOption
} {
	return option(func(s *settings) { s.stdout = to })
}

// WithStderr writes the standard error to w instead of AttachedExec.Stderr. An error of w ends the
// command.
func WithStderr(to io.Writer) interface {
	AttachOption
	ResumeOption
} {
	return option(func(s *settings) { s.stderr = to })
}

// WithTerminal gives the program a terminal of this size. All its output is then standard output.
func WithTerminal(rows, columns uint16) AttachOption {
	return option(func(s *settings) { s.terminal, s.rows, s.columns = true, rows, columns })
}

// WithOffsets skips output that was already received: the values of AttachedExec.Offsets.
func WithOffsets(stdout, stderr int64) ResumeOption {
	return option(func(s *settings) { s.stdoutFrom, s.stderrFrom = stdout, stderr })
}

// WithFollow continues with new records, until the sandbox is destroyed or the context ends.
func WithFollow() AuditOption {
	return option(func(s *settings) { s.follow = true })
}

// WithEvents selects events of these kinds: "permission_denied", …
func WithEvents(kinds ...string) AuditOption {
	return option(func(s *settings) { s.events = append(s.events, kinds...) })
}

// WithAfterSeq selects records after the number seq.
func WithAfterSeq(seq uint64) AuditOption {
	return option(func(s *settings) { s.after = seq })
}

// WithSince selects events at or after a time.
func WithSince(at time.Time) AuditOption {
	return option(func(s *settings) { s.since = at })
}
