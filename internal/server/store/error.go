package store

import (
	"context"
	"database/sql"
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// errNotThere is the error of a statement that changed no row.
var errNotThere = errdefs.New(errdefs.NotFound, "not found")

func fileError(err error) error {
	return errdefs.New(safefs.Kind(err), "database: %w", err)
}

// failed returns nil for nil, else "what: err" with the kind of the cause.
func failed(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	return errdefs.New(kindOf(ctx, err), "%s: %w", what, err)
}

func kindOf(ctx context.Context, err error) errdefs.Kind {
	if e, ok := errors.AsType[*errdefs.Error](err); ok {
		return e.Kind
	}
	// SQLite reports an interrupted statement with its own error, not that of the context.
	switch ended := errors.Join(err, ctx.Err()); {
	case errors.Is(err, sql.ErrNoRows):
		return errdefs.NotFound
	case errors.Is(ended, context.DeadlineExceeded):
		return errdefs.Deadline
	case errors.Is(ended, context.Canceled):
		return errdefs.Canceled
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return kindOfCode(e.Code())
	}
	return safefs.Kind(err)
}

// kindOfCode is the kind of each of SQLite's result codes (sqlite.org/rescode.html).
func kindOfCode(code int) errdefs.Kind {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return errdefs.Exists
	case sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_NOMEM:
		// The shared-memory file of the log could not grow: the disk is full.
		return errdefs.Exhausted
	}
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_CANTOPEN:
		return errdefs.Unavailable
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_TOOBIG:
		return errdefs.Exhausted
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return errdefs.Denied
	case sqlite3.SQLITE_NOTADB:
		return errdefs.Precondition
	}
	return errdefs.Internal
}
