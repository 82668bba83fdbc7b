// Package store is the server's database: codebases, tokens, and an index of the sandboxes by owner
// and codebase. It is one SQLite file, and the package touches no other.
//
// Stored data survives a killed server. Codebases and tokens also survive a power cut; the sizes of
// codebases and the index of the sandboxes may then be some calls older, because the server
// rebuilds them from files and records (ReplaceSandboxes).
//
// Calls are safe for concurrent use. One connection writes, a pool of others reads; a read sees
// every write that returned before it began. The store does not decide who may see what.
//
// Errors of every method, besides those it names: Exhausted if the disk is full, Unavailable if
// another process locks the database or the disk fails, Canceled and Deadline of the context,
// Internal for a damaged database.
package store

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Store is an open database.
type Store struct {
	writer, reader *sql.DB
}

// Options of a Store; the zero value works.
type Options struct {
	// BusyTimeout is how long a call waits while another process writes.
	// 0: five seconds.
	BusyTimeout time.Duration
}

// readers is the number of concurrent reads.
const readers = 4

// Open opens the database file path, creates it with mode 0600 if it does not exist, and migrates
// it to this version. The caller closes it.
//
// Errors: Precondition if a newer agentfense has written it, or if it is not a database of
// agentfense; NotFound and Denied of the file system.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	if o.BusyTimeout == 0 {
		o.BusyTimeout = 5 * time.Second
	}
	if err := touch(path); err != nil {
		return nil, err
	}
	s := new(Store)
	var err error
	if s.writer, err = openPool(path, o, 1, "journal_mode(WAL)"); err != nil {
		return nil, err
	}
	if s.reader, err = openPool(path, o, readers, "query_only(1)"); err != nil {
		return nil, errors.Join(err, s.writer.Close())
	}
	if err := s.migrate(ctx, path); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// touch creates the database as an empty file that only its owner can read, if it does not exist.
// SQLite gives its other files the same mode.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fileError(err)
	}
	if err := f.Close(); err != nil {
		return fileError(err)
	}
	return nil
}

func openPool(path string, o Options, connections int, pragmas ...string) (*sql.DB, error) {
	pragmas = append([]string{"busy_timeout(" + strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10) + ")"}, pragmas...)
	name := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: url.Values{
		"_pragma": pragmas, "_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "database %s: %w", path, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// Close closes the database after running calls have ended.
func (s *Store) Close() error {
	return errors.Join(s.reader.Close(), s.writer.Close())
}

// Check reads from the database, to check that it works.
func (s *Store) Check(ctx context.Context) error {
	var n int
	return failed(ctx, "check the database", s.reader.QueryRowContext(ctx, "SELECT count(*) FROM tokens").Scan(&n))
}

// durability is what a committed write survives: SQLite's setting "synchronous".
type durability string

const (
	// powerCut waits for the disk.
	powerCut durability = "PRAGMA synchronous = FULL"
	// ownDeath does not wait for the disk. The next write that does makes this one durable too.
	ownDeath durability = "PRAGMA synchronous = NORMAL"
)

// write runs do in a transaction that has the write lock from its beginning. It commits if do
// returns nil, otherwise it rolls back.
func (s *Store) write(ctx context.Context, what string, survives durability, do func(tx *sql.Tx) error) error {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return failed(ctx, what, err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, string(survives)); err != nil {
		return failed(ctx, what, err)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return failed(ctx, what, err)
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return failed(ctx, what, err)
	}
	return failed(ctx, what, tx.Commit())
}

// change runs a statement that must change a row.
func change(ctx context.Context, tx *sql.Tx, statement string, args ...any) error {
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = errNotThere
	}
	return err
}

// fromNanos converts a column to a time; 0 is the zero time.
func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// nanos is the reverse of fromNanos.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
