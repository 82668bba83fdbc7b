package portable

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
)

// openForeign copies a database that may be hostile, with its write-ahead log, and opens the copy.
// The copy has no name any more, so that it is gone with this process. digest gets the SHA-256 of
// the database. Errors: Invalid; those of the host.
func openForeign(ctx context.Context, file string, digest *string) (conn *sql.Conn, closeAll func() error, err error) {
	scratch, err := safefs.MakeScratch("agentfense-import-")
	if err != nil {
		return nil, nil, failedImport(file, err)
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	path := filepath.Join(scratch.Path, "copy.db")
	if err := copyForeign(ctx, file, path, digest); err != nil {
		return nil, nil, err
	}
	if err := checkIsDatabase(file, path); err != nil {
		return nil, nil, err
	}
	// An exclusive lock keeps the index of the write-ahead log in memory.
	name := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: url.Values{"_pragma": {
		"locking_mode(EXCLUSIVE)", "trusted_schema(0)", "cell_size_check(1)", "mmap_size(0)", "temp_store(FILE)", "cache_size(-8192)",
	}}.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, nil, failedImport(file, err)
	}
	db.SetMaxOpenConns(1)
	if conn, err = query.LimitedConn(ctx, db); err == nil {
		_, err = conn.ExecContext(ctx, "PRAGMA query_only = 1")
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(new(int64))
	}
	if err != nil {
		return nil, nil, errors.Join(notDatabase(ctx, file, err), db.Close())
	}
	return conn, func() error { return errors.Join(conn.Close(), db.Close()) }, nil
}

// copyForeign copies the database and its write-ahead log. Errors: Invalid for what is no regular
// file, and for a database with an unfinished transaction.
func copyForeign(ctx context.Context, file, to string, digest *string) error {
	if st, err := os.Stat(file + "-journal"); err == nil && st.Size() > 0 {
		return errdefs.New(errdefs.Invalid, "import %s: it has an unfinished transaction in %s: open it once with the program that made it", vpath.Quote(file), vpath.Quote(file+"-journal"))
	}
	sum := sha256.New()
	if err := copyOne(ctx, file, to, sum); err != nil {
		return err
	}
	*digest = hex.EncodeToString(sum.Sum(nil))
	err := copyOne(ctx, file+"-wal", to+"-wal", io.Discard)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// copyOne copies a file, and also writes its content to sum.
func copyOne(ctx context.Context, from, to string, sum io.Writer) (err error) {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return failedImport(from, err)
	}
	defer in.Close()
	if st, err := in.Stat(); err != nil || !st.Mode().IsRegular() {
		return errdefs.New(errdefs.Invalid, "import %s: not a regular file", vpath.Quote(from))
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failedImport(from, err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(io.MultiWriter(out, sum), readUntil{ctx, in}); err != nil {
		return failedImport(from, err)
	}
	return nil
}

// readUntil is a reader that ends with a context.
type readUntil struct {
	ctx context.Context
	io.Reader
}

func (r readUntil) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// failedImport wraps an error of the host's file system or of a context.
func failedImport(file string, err error) error {
	kind := safefs.Kind(err)
	if errors.Is(err, context.Canceled) {
		kind = errdefs.Canceled
	}
	return errdefs.New(kind, "import %s: %w", vpath.Quote(file), err)
}

// notDatabase explains an error of SQLite.
func notDatabase(ctx context.Context, file string, err error) error {
	if _, known := errors.AsType[*errdefs.Error](err); known {
		return err
	}
	if ctx.Err() != nil {
		return errdefs.New(errdefs.Canceled, "import %s: %w", vpath.Quote(file), ctx.Err())
	}
	return errdefs.New(errdefs.Invalid, "import %s: not a usable SQLite database: %w", vpath.Quote(file), err)
}

// neededColumns are those of the tables that every database of AgentFS 0.4 has.
var neededColumns = map[string][]string{
	"fs_config":  {"key", "value"},
	"fs_inode":   {"ino", "mode", "nlink", "size", "atime", "mtime"},
	"fs_dentry":  {"name", "parent_ino", "ino"},
	"fs_data":    {"ino", "chunk_index", "data"},
	"fs_symlink": {"ino", "target"},
}

// newColumns are those with which version 0.4 began.
var newColumns = []string{"rdev", "atime_nsec", "mtime_nsec", "ctime_nsec"}

// actingSQL matches the definition of a table that is more than stored rows.
var actingSQL = regexp.MustCompile(`\b(VIRTUAL|CHECK)\b`)

// readSchema returns the columns of each table, and refuses a schema in which reading a table could
// run something, or shows what the file does not have.
func readSchema(ctx context.Context, conn *sql.Conn) (map[string][]string, error) {
	refuse := func(format string, args ...any) error { return errdefs.New(errdefs.Invalid, format, args...) }
	err := eachRow(ctx, conn, "SELECT type, name, upper(coalesce(sql, '')) FROM sqlite_schema", func(scan func(...any) error) error {
		var kind, name, text string
		if err := scan(&kind, &name, &text); err != nil {
			return err
		}
		switch {
		case kind != "table" && kind != "index":
			return refuse("its schema has the %s %s: only tables and indexes are accepted", vpath.Quote(kind), vpath.Quote(name))
		case actingSQL.MatchString(text):
			return refuse("table %s is virtual or has a CHECK, which is not accepted", vpath.Quote(name))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	columns := map[string][]string{}
	err = eachRow(ctx, conn, "SELECT s.name, x.name, x.hidden FROM sqlite_schema s, pragma_table_xinfo(s.name) x WHERE s.type = 'table'", func(scan func(...any) error) error {
		var table, column string
		var hidden int64
		if err := scan(&table, &column, &hidden); err != nil {
			return err
		}
		if hidden != 0 {
			return refuse("column %s of table %s is generated, which is not accepted", vpath.Quote(column), vpath.Quote(table))
		}
		columns[strings.ToLower(table)] = append(columns[strings.ToLower(table)], strings.ToLower(column))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return columns, checkColumns(columns)
}

func checkColumns(columns map[string][]string) error {
	for table, needed := range neededColumns {
		for _, column := range needed {
			if !slices.Contains(columns[table], column) {
				return errdefs.New(errdefs.Invalid, "it is not a database of AgentFS: table %s has no column %s", table, column)
			}
		}
	}
	for _, column := range newColumns {
		if !slices.Contains(columns["fs_inode"], column) {
			return errdefs.New(errdefs.Invalid, "it is older than AgentFS 0.4: table fs_inode has no column %s: migrate a copy of it first, with agentfs migrate FILE", column)
		}
	}
	return nil
}

// checkPages finds damaged pages, such as those of the write-ahead log of another database.
func checkPages(ctx context.Context, conn *sql.Conn) error {
	var answer string
	if err := conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&answer); err != nil {
		return err
	}
	if answer != "ok" {
		return errdefs.New(errdefs.Invalid, "it is damaged: %s", vpath.Escape(answer))
	}
	return nil
}

// eachRow calls do with a function that reads one row.
func eachRow(ctx context.Context, conn *sql.Conn, query string, do func(scan func(...any) error) error) error {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
