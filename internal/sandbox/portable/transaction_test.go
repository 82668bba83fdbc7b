package portable

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
)

// A transaction whose context is canceled ends at a statement, with the error of the context.
func TestATransactionEndsWithItsContext(t *testing.T) {
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
		cancel()
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
