package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
)

// Sandbox is the index entry of a sandbox.
type Sandbox struct {
	ID         id.Sandbox
	Name       string
	CodebaseID id.Codebase // "" for one that run made
	OwnerID    string      // "" for one that run made
	CreatedAt  time.Time
}

const sandboxColumns = "id, name, codebase_id, owner_id, created_at"

func scanSandbox(row scanner) (b Sandbox, err error) {
	var created int64
	err = row.Scan(&b.ID, &b.Name, &b.CodebaseID, &b.OwnerID, &created)
	b.CreatedAt = fromNanos(created)
	return b, err
}

func insertSandbox(ctx context.Context, tx *sql.Tx, b Sandbox) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO sandboxes ("+sandboxColumns+") VALUES (?, ?, ?, ?, ?)",
		b.ID, b.Name, b.CodebaseID, b.OwnerID, nanos(b.CreatedAt))
	return err
}

// AddSandbox adds a new sandbox to the index, unless its owner already has most sandboxes; 0: no
// limit. The check is atomic. Errors: NotFound if its codebase does not exist; Exists if its ID or
// name is in use; Exhausted.
func (s *Store) AddSandbox(ctx context.Context, b Sandbox, most int) error {
	return s.write(ctx, "create sandbox "+string(b.ID), ownDeath, func(tx *sql.Tx) error {
		if b.CodebaseID != "" {
			var n int
			err := tx.QueryRowContext(ctx, "SELECT 1 FROM codebases WHERE id = ?", b.CodebaseID).Scan(&n)
			if errors.Is(err, sql.ErrNoRows) {
				return id.NoSuch("codebase", string(b.CodebaseID))
			} else if err != nil {
				return err
			}
		}
		if err := roomFor(ctx, tx, "sandboxes", b.OwnerID, 1, most); err != nil {
			return err
		}
		return insertSandbox(ctx, tx, b)
	})
}

// CheckRoom refuses so many more sandboxes of an owner, as AddSandbox would. Errors: Exhausted.
func (s *Store) CheckRoom(ctx context.Context, owner string, more, most int) error {
	return failed(ctx, "create sandbox", roomFor(ctx, s.reader, "sandboxes", owner, more, most))
}

// roomFor checks the number of an owner's rows in a table, and of more of them; most 0: no limit.
func roomFor(ctx context.Context, in interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, table, owner string, more, most int,
) error {
	if most == 0 {
		return nil
	}
	var n int
	err := in.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" WHERE owner_id = ?", owner).Scan(&n)
	if err == nil && n > most-more {
		err = errdefs.New(errdefs.Exhausted, "the owner has %d, and %w are allowed: remove one first", n, &errdefs.Limit{Most: int64(most), Resource: table})
	}
	return err
}

// Sandbox returns the index entry of the sandbox id. Errors: NotFound.
func (s *Store) Sandbox(ctx context.Context, key id.Sandbox) (Sandbox, error) {
	b, err := scanSandbox(s.reader.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE id = ?", key))
	if errors.Is(err, sql.ErrNoRows) {
		return Sandbox{}, id.NoSuch("sandbox", string(key))
	}
	return b, failed(ctx, "sandbox "+string(key), err)
}

// SandboxFilter selects sandboxes; an empty field selects all.
type SandboxFilter struct {
	OwnerID    string
	CodebaseID id.Codebase
	Name       string
}

// Sandboxes is Codebases for sandboxes.
func (s *Store) Sandboxes(ctx context.Context, f SandboxFilter, p Page) ([]Sandbox, string, error) {
	return listing[Sandbox]{
		what: "list sandboxes", columns: sandboxColumns, table: "sandboxes", isID: func(s string) bool { return id.Sandbox(s).IsValid() },
		equal: map[string]string{"owner_id": f.OwnerID, "codebase_id": string(f.CodebaseID), "name": f.Name}, scan: scanSandbox,
		key: func(b Sandbox) (time.Time, string) { return b.CreatedAt, string(b.ID) },
	}.page(ctx, s.reader, p)
}

// RemoveSandbox removes a sandbox from the index. Errors: NotFound.
func (s *Store) RemoveSandbox(ctx context.Context, key id.Sandbox) error {
	return s.write(ctx, "destroy sandbox "+string(key), ownDeath, func(tx *sql.Tx) error {
		return change(ctx, tx, "DELETE FROM sandboxes WHERE id = ?", key)
	})
}

// ReplaceSandboxes replaces the index by these sandboxes, from their records; after an error it is
// unchanged. Their codebases need not exist. Errors: Exists if two have the same ID or name.
func (s *Store) ReplaceSandboxes(ctx context.Context, all []Sandbox) error {
	return s.write(ctx, "make the index of sandboxes", ownDeath, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM sandboxes"); err != nil {
			return err
		}
		for _, b := range all {
			if err := insertSandbox(ctx, tx, b); err != nil {
				return err
			}
		}
		return nil
	})
}
