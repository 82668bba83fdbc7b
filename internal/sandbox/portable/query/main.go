package query

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
	"modernc.org/sqlite/vfs"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Main is the process of a query, and returns its exit code.
func Main() int {
	out := writer{bufio.NewWriterSize(os.Stdout, pipeBytes)}
	if _, err := os.Stdout.WriteString(ready); err != nil {
		return 1
	}
	var j job
	err := json.NewDecoder(os.Stdin).Decode(&j)
	if err == nil {
		err = j.answer(context.Background(), out)
	}
	if err != nil {
		out.failure(explain(err))
	}
	if out.Flush() != nil {
		return 1
	}
	return 0
}

// answer writes what the statement finds.
func (j *job) answer(ctx context.Context, out writer) error {
	db, err := openDatabase()
	if err != nil {
		return errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	conn, err := LimitedConn(ctx, db)
	if err != nil {
		return errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	found, err := conn.QueryContext(ctx, string(j.Statement))
	if err != nil {
		return err
	}
	defer found.Close()
	names, err := found.Columns()
	if err != nil {
		return err
	}
	out.columns(names)
	values, at := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		at[i] = &values[i]
	}
	rows := 0
	for ; found.Next(); rows++ {
		if rows == j.Rows {
			out.end(true)
			return nil
		}
		if err := found.Scan(at...); err != nil {
			return err
		}
		for i, v := range values {
			values[i] = plain(v)
		}
		if err := out.row(values); err != nil {
			return err
		}
	}
	if err := found.Err(); err != nil {
		return err
	}
	out.end(false)
	return nil
}

// databaseName is the name of the database in the process: a statement can ask for it.
const databaseName = "tables.db"

// openDatabase opens the inherited database, through a file system that has only this file.
func openDatabase() (*sql.DB, error) {
	name, _, err := vfs.New(oneFile{os.NewFile(databaseFD, databaseName)})
	if err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", Opaque: databaseName, RawQuery: url.Values{
		"vfs": {name}, "mode": {"ro"}, "immutable": {"1"},
		"_pragma": {"query_only(1)", "trusted_schema(0)", "temp_store(MEMORY)", "cache_size(-8192)"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(1) // they would share the position in the file
	}
	return db, err
}

// oneFile is a file system with the file databaseName.
type oneFile struct{ file *os.File }

func (f oneFile) Open(name string) (fs.File, error) {
	if name != databaseName {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.file, nil
}

// LimitedConn returns a connection that attaches no database and makes no huge values.
func LimitedConn(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, limit := range []struct{ id, value int }{
		{sqlite3.SQLITE_LIMIT_ATTACHED, 0}, {sqlite3.SQLITE_LIMIT_LENGTH, MaxValueBytes}, {sqlite3.SQLITE_LIMIT_SQL_LENGTH, MaxValueBytes},
	} {
		if err == nil {
			_, err = sqlite.Limit(conn, limit.id, limit.value)
		}
	}
	return conn, err
}

// plain undoes what the driver makes of a column's declared type.
func plain(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.UTC().Format(TimeFormat)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	}
	return v
}

// explain gives an error of SQLite its kind.
func explain(err error) error {
	if _, known := errors.AsType[*errdefs.Error](err); known {
		return err
	}
	if e, is := errors.AsType[*sqlite.Error](err); is && e.Code()&0xff == sqlite3.SQLITE_NOMEM {
		return errMemory
	}
	return errdefs.New(errdefs.Invalid, "sql: %w", err)
}
