package portable

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Bounds limit a query. All must be positive.
type Bounds struct {
	Rows int
	Time time.Duration // of the query, without the reading of the sandbox
	// MemoryBytes is by how much the query may grow this process. It is checked a hundred times a
	// second.
	MemoryBytes int64
}

// Rows is what a query found. A value is nil, an int64, a float64, a string or a []byte.
type Rows struct {
	Columns []string
	Values  [][]any
	More    bool // there are more rows than Bounds.Rows
}

// The limits of every query.
const (
	maxValueBytes  = 4 << 20  // of a text, and of the statement
	maxResultBytes = 64 << 20 // of the values together
)

// The limits of sqlite3_limit (sqlite3.h).
const (
	limitLength    = 0
	limitSQLLength = 1
	limitAttached  = 7
)

// Query answers one SELECT statement about the Tables of a sandbox. The tables are a copy in a
// temporary file, which the statement can only read; it can open no other file. Errors: Invalid
// for another statement and for a mistake in it; Deadline; Exhausted for a result that is too
// large; those of changes.OpenToRead.
func Query(ctx context.Context, s *record.Sandbox, statement string, b Bounds) (rows Rows, err error) {
	if err := checkStatement(statement); err != nil {
		return rows, err
	}
	dir, remove, err := scratchDir("agentfense-sql-")
	if err != nil {
		return rows, errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	path := filepath.Join(dir, "tables.db")
	if err := makeTables(ctx, s, path); err != nil {
		return rows, err
	}
	db, err := openReadOnly(path)
	if err != nil {
		return rows, errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	limited, cancel := context.WithTimeout(ctx, b.Time)
	defer cancel()
	watched, stop, err := watchMemory(limited, b.MemoryBytes)
	if err != nil {
		return rows, err
	}
	defer stop()
	conn, err := limitedConn(watched, db)
	if err != nil {
		return rows, errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	defer conn.Close()
	if rows, err = read(watched, conn, statement, b.Rows); err == nil {
		return rows, nil
	}
	return Rows{}, explainQuery(ctx, watched, err, b)
}

// makeTables writes the tables of a sandbox to a new database.
func makeTables(ctx context.Context, s *record.Sandbox, path string) (err error) {
	d, err := openDelta(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	db, err := openNew(path, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		defer tx.Rollback()
		err = fillTables(ctx, tx, "", d, s)
	}
	if err == nil {
		err = tx.Commit()
	}
	if _, known := errors.AsType[*errdefs.Error](err); err == nil || known {
		return err
	}
	return errdefs.New(databaseKind(err), "sql: make the tables: %w", err)
}

func openReadOnly(path string) (*sql.DB, error) {
	name := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: url.Values{
		"mode": {"ro"}, "immutable": {"1"}, "_pragma": {"query_only(1)", "trusted_schema(0)", "temp_store(MEMORY)", "cache_size(-8192)"},
	}.Encode()}
	return sql.Open("sqlite", name.String())
}

// limitedConn returns a connection that attaches no database and makes no huge values.
func limitedConn(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, limit := range []struct{ id, value int }{
		{limitAttached, 0}, {limitLength, maxValueBytes}, {limitSQLLength, maxValueBytes},
	} {
		if err == nil {
			_, err = sqlite.Limit(conn, limit.id, limit.value)
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// errTooLarge is the error of a result above maxResultBytes.
var errTooLarge = errdefs.New(errdefs.Exhausted, "sql: the result is larger than %d MiB: select fewer columns or rows", maxResultBytes>>20)

func read(ctx context.Context, conn *sql.Conn, statement string, most int) (Rows, error) {
	found, err := conn.QueryContext(ctx, statement)
	if err != nil {
		return Rows{}, err
	}
	defer found.Close()
	var rows Rows
	if rows.Columns, err = found.Columns(); err != nil {
		return rows, err
	}
	size := 0
	for found.Next() {
		if rows.More = len(rows.Values) == most; rows.More {
			break
		}
		values, at := make([]any, len(rows.Columns)), make([]any, len(rows.Columns))
		for i := range values {
			at[i] = &values[i]
		}
		if err := found.Scan(at...); err != nil {
			return rows, err
		}
		for i, v := range values {
			values[i] = plain(v)
			size += sizeOf(values[i])
		}
		if size > maxResultBytes {
			return rows, errTooLarge
		}
		rows.Values = append(rows.Values, values)
	}
	return rows, errors.Join(found.Err(), found.Close())
}

// plain undoes what the driver makes of a column's declared type.
func plain(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.UTC().Format(timeFormat)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	}
	return v
}

func sizeOf(v any) int {
	const small = 16
	switch v := v.(type) {
	case string:
		return small + len(v)
	case []byte:
		return small + len(v)
	}
	return small
}

func explainQuery(ctx, watched context.Context, err error, b Bounds) error {
	switch {
	case errors.Is(err, errTooLarge):
		return err
	case errors.Is(context.Cause(watched), errMemory):
		return errMemory
	case ctx.Err() != nil:
		return errdefs.New(errdefs.Canceled, "sql: %w", ctx.Err())
	case errors.Is(context.Cause(watched), context.DeadlineExceeded):
		return errdefs.New(errdefs.Deadline, "sql: the query takes longer than %s: simplify it, or give --timeout", b.Time)
	}
	return errdefs.New(errdefs.Invalid, "sql: %w", err)
}

// checkStatement refuses what is not one statement that reads. The connection is read-only; this
// keeps statements out that act elsewhere, such as VACUUM INTO and PRAGMA.
func checkStatement(statement string) error {
	word, err := firstWord(statement)
	if err != nil {
		return err
	}
	switch strings.ToUpper(word) {
	case "SELECT", "WITH", "VALUES":
		return nil
	}
	return errdefs.New(errdefs.Invalid, "sql: want one statement that begins with SELECT, WITH or VALUES")
}
