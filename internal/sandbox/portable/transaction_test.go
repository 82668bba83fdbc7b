package portable

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
)

// If its context is canceled, a transaction fails at the next statement, with the error of the
// context.
func TestATransactionEndsWithItsContext(t *testing.T) {
	for name, prepared := range map[string]bool{"a statement": false, "a prepared statement": true} {
		t.Run(name, func(t *testing.T) { endWithContext(t, prepared) })
	}
}

func endWithContext(t *testing.T, prepared bool) {
	db, err := openNew(filepath.Join(t.TempDir(), "db"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	err = inTransaction(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "CREATE TABLE rows (n INTEGER)"); err != nil {
			return err
		}
		insert, err := tx.PrepareContext(ctx, "INSERT INTO rows VALUES (1)")
		if err != nil {
			return err
		}
		defer insert.Close()
		cancel()
		for prepared {
			if _, err := insert.ExecContext(ctx); err != nil && !errors.Is(err, sql.ErrTxDone) {
				return err // the driver has closed it
			}
		}
		for {
			if _, err := tx.ExecContext(ctx, "INSERT INTO rows VALUES (1)"); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the transaction ended with %v", err)
	}
}
