package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
)

// Codebase is the row of a codebase.
type Codebase struct {
	ID         id.Codebase
	Name       string
	OwnerID    string
	LinkedPath string // the directory of the host; "" for an uploaded one
	SizeBytes  int64  // of all files of an uploaded one
	FileCount  int
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

const codebaseColumns = "id, name, owner_id, linked_path, size, file_count, created_at, updated_at"

func scanCodebase(row scanner) (c Codebase, err error) {
	var created, updated int64
	err = row.Scan(&c.ID, &c.Name, &c.OwnerID, &c.LinkedPath, &c.SizeBytes, &c.FileCount, &created, &updated)
	c.CreatedAt, c.UpdatedAt = fromNanos(created), fromNanos(updated)
	return c, err
}

// AddCodebase stores a new codebase, unless its owner already has most codebases; 0: no limit. The
// check is atomic. Errors: Exists if the ID is in use; Exhausted.
func (s *Store) AddCodebase(ctx context.Context, c Codebase, most int) error {
	return s.write(ctx, "create codebase "+string(c.ID), powerCut, func(tx *sql.Tx) error {
		if err := roomFor(ctx, tx, "codebases", c.OwnerID, 1, most); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO codebases ("+codebaseColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			c.ID, c.Name, c.OwnerID, c.LinkedPath, c.SizeBytes, c.FileCount, nanos(c.CreatedAt), nanos(c.UpdatedAt))
		return err
	})
}

// Codebase returns the codebase id. Errors: NotFound.
func (s *Store) Codebase(ctx context.Context, key id.Codebase) (Codebase, error) {
	c, err := scanCodebase(s.reader.QueryRowContext(ctx, "SELECT "+codebaseColumns+" FROM codebases WHERE id = ?", key))
	if errors.Is(err, sql.ErrNoRows) {
		return Codebase{}, id.NoSuch("codebase", string(key))
	}
	return c, failed(ctx, "codebase "+string(key), err)
}

// CodebaseFilter selects codebases; an empty field selects all.
type CodebaseFilter struct {
	OwnerID string
}

// Codebases returns a page of codebases, the oldest first, and the token of the next page, "" after
// the last. Errors: Invalid for an invalid page.
func (s *Store) Codebases(ctx context.Context, f CodebaseFilter, p Page) ([]Codebase, string, error) {
	return listing[Codebase]{
		what: "list codebases", columns: codebaseColumns, table: "codebases", isID: func(s string) bool { return id.Codebase(s).IsValid() },
		equal: map[string]string{"owner_id": f.OwnerID}, scan: scanCodebase,
		key: func(c Codebase) (time.Time, string) { return c.CreatedAt, string(c.ID) },
	}.page(ctx, s.reader, p)
}

// SetCodebaseContent records the size of a codebase since updatedAt. It does not wait for the disk,
// because it is called for each file. Errors: NotFound.
func (s *Store) SetCodebaseContent(ctx context.Context, key id.Codebase, sizeBytes int64, fileCount int, updatedAt time.Time) error {
	return s.write(ctx, "update codebase "+string(key), ownDeath, func(tx *sql.Tx) error {
		return change(ctx, tx, "UPDATE codebases SET size = ?, file_count = ?, updated_at = ? WHERE id = ?",
			sizeBytes, fileCount, nanos(updatedAt), key)
	})
}

// RemoveCodebase removes a codebase. Errors: NotFound; Precondition while sandboxes use it.
func (s *Store) RemoveCodebase(ctx context.Context, key id.Codebase) error {
	return s.write(ctx, "delete codebase "+string(key), powerCut, func(tx *sql.Tx) error {
		var n int
		err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sandboxes WHERE codebase_id = ?", key).Scan(&n)
		switch {
		case err != nil:
			return err
		case n > 0:
			return errdefs.New(errdefs.Precondition, "used by %d sandboxes: destroy them first", n)
		}
		return change(ctx, tx, "DELETE FROM codebases WHERE id = ?", key)
	})
}
