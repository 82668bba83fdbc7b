package portable

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Query answers one SELECT statement about the Tables of a sandbox. The tables are a copy in a
// temporary file, which is removed before the statement runs. Errors: those of query.Check,
// query.Run and changes.OpenToRead.
func Query(ctx context.Context, s *record.Sandbox, statement string, b query.Bounds) (query.Rows, error) {
	if err := query.Check(statement); err != nil {
		return query.Rows{}, err
	}
	tables, err := openTables(ctx, s)
	if err != nil {
		return query.Rows{}, err
	}
	defer tables.Close()
	return query.Run(ctx, tables, statement, b)
}

// openTables opens a new database of the tables of a sandbox. It has no name any more.
func openTables(ctx context.Context, s *record.Sandbox) (tables *os.File, err error) {
	scratch, err := safefs.MakeScratch("agentfense-sql-")
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	defer func() {
		if removed := scratch.Remove(); removed != nil {
			err = errors.Join(err, errdefs.New(errdefs.Internal, "sql: %w", removed))
		}
		if err != nil && tables != nil {
			tables.Close()
		}
	}()
	path := filepath.Join(scratch.Path, "tables.db")
	if err := makeTables(ctx, s, path); err != nil {
		return nil, err
	}
	if tables, err = os.Open(path); err != nil {
		return nil, errdefs.New(errdefs.Internal, "sql: %w", err)
	}
	return tables, nil
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
	err = inTransaction(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		return fillTables(ctx, tx, "", d, s)
	})
	if _, known := errors.AsType[*errdefs.Error](err); err == nil || known {
		return err
	}
	return errdefs.New(databaseKind(err), "sql: make the tables: %w", err)
}
