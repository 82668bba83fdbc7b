package backend

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// EnterOptions say how a sandbox is entered.
type EnterOptions struct {
	Exclusive bool // refuse one that runs
	Rebase    bool // take the directory that is in the place of the source now
	// Learn records what is used, for Live.Used. It refuses a sandbox that runs.
	Learn bool
	// Checkpoint is the command before which a snapshot is made; nil: none is.
	Checkpoint []string
	// Warn is told of a secret whose value cannot be found. It may be nil.
	Warn func(error)
	// Started is told of the sandbox if Enter has started it. It may be nil.
	Started func(Sandbox)
	// Recovered is told what a killed apply or undo had left in the source, and Enter has rolled
	// back. It may be nil.
	Recovered func(history.Recovered)
}

// Live is a sandbox that runs for as long as somebody uses it.
type Live interface {
	// Attach starts a command. The errors of one that was certainly not started hold a
	// *NotStartedError.
	Attach(ctx context.Context, c Command) (Attached, error)
	// Detach starts a command, if there is one, that goes on without us, and keeps the
	// sandbox running. It returns an exit code other than 0, with the reason on stderr, of a
	// command that could not be started. Errors: as Attach.
	Detach(ctx context.Context, c Command, stderr io.Writer) (Exit, error)
	// Used returns what was used since EnterOptions.Learn, that of the workspace first.
	Used(ctx context.Context) ([]api.Used, error)
	// GiveSecrets hands the values of secrets over that may have changed since Enter. Errors:
	// Unsupported, of a server, which has its own.
	GiveSecrets(ctx context.Context) error
	// Leave ends our use. If we have started the sandbox and nobody else uses it, it ends.
	Leave() error
}

// Command is a command to be run in a sandbox.
type Command struct {
	Argv     []string
	Env      []string // NAME=VALUE, or NAME for the caller's value
	Remember bool     // the later commands of the sandbox have Env, too
	WorkDir  string   // inside; relative to the workspace; "" for Here or the workspace
	Here     string   // the caller's directory, "" if that is not known
	Timeout  time.Duration
	Rows     uint16 // of a terminal of its own; 0: it gets pipes
	Columns  uint16
}

// Dir is the directory inside in which the command starts, in the sandbox of a record.
func (c *Command) Dir(r record.Record) string {
	switch {
	case filepath.IsAbs(c.WorkDir):
		return c.WorkDir
	case c.WorkDir != "":
		return filepath.Join(r.Workspace, c.WorkDir)
	case c.Here == "" || !safefs.IsBelow(c.Here, string(r.Source.Path)):
		return r.Workspace
	}
	return filepath.Join(r.Workspace, strings.TrimPrefix(c.Here, string(r.Source.Path)))
}

// Attached is a command that runs in a sandbox with its streams here. Its
// methods may be called concurrently.
type Attached interface {
	io.Writer // the command's standard input
	CloseInput()
	Resize(rows, columns uint16)
	Signal(s syscall.Signal)
	// Wait copies the command's output until it has ended and tells how.
	Wait(stdout, stderr io.Writer) (Exit, error)
}

// NotStartedError is an error of a command of which certainly nothing has run.
type NotStartedError struct{ error }

// NotStarted says so of err.
func NotStarted(err error) error { return &NotStartedError{err} }

// Unwrap is the error.
func (e *NotStartedError) Unwrap() error { return e.error }

// Exit is how a command ended.
type Exit struct {
	Code   int        // as api.Exit.ExitCode has it
	Reason api.Reason // why it did not end by itself, as far as it is known
	// Conflicts are paths that the command changed and somebody outside too, as
	// many as the server tells of; ConflictCount is how many there were.
	Conflicts     []string
	ConflictCount int64
	// SyncHeld says that what the command changed waits in the sandbox for an apply.
	SyncHeld bool
	// Refused is what the policy refused the command, as far as it is known, without the
	// sources of rules; Touched are the paths that it made or changed.
	Refused []audit.PermissionDenied
	Touched []vpath.Path
}
