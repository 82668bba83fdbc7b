package backend

import (
	"context"

	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

// History is what was applied, and taken back. A server has the history of linked codebases and of
// the sources of mounts.
type History interface {
	// History lists the transactions of a sandbox, which may be removed, or without a name of the
	// source that is, or contains, the directory. The oldest is first. Errors: NotFound for a name
	// that neither a sandbox nor a transaction has. A server needs a name, which may be the id of a
	// linked codebase. Its errors: Invalid without one; Precondition for what was uploaded.
	History(ctx context.Context, name, dir string) ([]history.Entry, error)
	// Undo reverses a transaction. Where this process may not read all files of the sandbox, it
	// does as Changes. Errors: NotFound if there is nothing to reverse; those of undo.Reverse.
	Undo(ctx context.Context, o UndoOptions) (undo.Result, error)
}

// UndoOptions say what to reverse: the transaction with the ID, else the last one of the sandbox
// with the name, else that of the source that is, or contains, the directory.
type UndoOptions struct {
	ID, Name, Dir string
	Redo, DryRun  bool
	Waiting       func(holder string)
	Recovered     func(history.Recovered)
	Again         []string // the command line
}
