package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// migrations has one file for each version: NNNN_what.sql migrates from the version before to NNNN.
// A released file is never changed.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate migrates the database to the latest version in one transaction. It checks the version by
// the reader first, because the writer's first connection would switch a foreign database to WAL
// mode.
func (s *Store) migrate(ctx context.Context, path string) error {
	steps, err := migrationTexts()
	if err != nil {
		return errdefs.New(errdefs.Internal, "database migrations: %w", err)
	}
	what := fmt.Sprintf("database %s", path)
	if _, err := version(ctx, s.reader, len(steps)); err != nil {
		return failed(ctx, what, err)
	}
	return s.write(ctx, what, powerCut, func(tx *sql.Tx) error {
		from, err := version(ctx, tx, len(steps))
		if err != nil {
			return err
		}
		for _, step := range steps[from:] {
			if _, err := tx.ExecContext(ctx, step); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(steps)))
		return err
	})
}

// querier is what *sql.DB and *sql.Tx have in common.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version returns the version of the database. Errors: Precondition if this agentfense cannot
// migrate it.
func version(ctx context.Context, q querier, latest int) (int, error) {
	var version, tables int
	err := q.QueryRowContext(ctx, "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version").Scan(&version, &tables)
	switch {
	case err != nil:
		return 0, err
	case version > latest:
		return 0, errdefs.New(errdefs.Precondition, "version %d is of a newer agentfense; this one knows versions up to %d", version, latest)
	case version < 0 || version == 0 && tables > 0:
		return 0, errdefs.New(errdefs.Precondition, "not a database of agentfense")
	}
	return version, nil
}

// migrationTexts are the statements of each version, the first at 0.
func migrationTexts() ([]string, error) {
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.Sort(names)
	texts := make([]string, len(names))
	for i, name := range names {
		text, err := migrations.ReadFile("migrations/" + name)
		if err != nil {
			return nil, err
		}
		texts[i] = string(text)
	}
	return texts, nil
}
