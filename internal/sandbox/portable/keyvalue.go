package portable

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// keyValueFile is the file in a sandbox's directory with the rows of kv_store that came with an
// import, a line of JSON for each. Only an export reads it.
const keyValueFile = "kv_store.jsonl"

// maxKeyValueBytes bounds the keys and the values that an import keeps.
const maxKeyValueBytes = 16 << 20

// keyValue is a row of kv_store.
type keyValue struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Created *int64 `json:"created_at,omitempty"`
	Updated *int64 `json:"updated_at,omitempty"`
}

// readValues reads kv_store. If it is too large, a note says that it is left out.
func (r *treeReader) readValues() error {
	columns := r.columns["kv_store"]
	if columns == nil {
		return nil
	}
	for _, column := range []string{"key", "value", "created_at", "updated_at"} {
		if !slices.Contains(columns, column) {
			return malformed("kv_store: it has no column %s", column)
		}
	}
	var rows, size, largest int64
	err := r.conn.QueryRowContext(r.ctx, "SELECT count(*), coalesce(sum(size), 0), coalesce(max(size), 0) FROM (SELECT octet_length(key) + octet_length(value) AS size FROM kv_store)").Scan(&rows, &size, &largest)
	if err != nil {
		return err
	}
	if size > maxKeyValueBytes || largest > query.MaxValueBytes || rows > maxImportEntries { // rows may be empty
		r.notes = append(r.notes, fmt.Sprintf("left out: %s of kv_store: a sandbox keeps at most %d MiB of them, with at most %d MiB in each", rowsOf(rows), maxKeyValueBytes>>20, query.MaxValueBytes>>20))
		return nil
	}
	return r.each("SELECT CAST(key AS TEXT), CAST(value AS TEXT), CAST(created_at AS INTEGER), CAST(updated_at AS INTEGER) FROM kv_store", func(scan func(...any) error) error {
		var v keyValue
		if err := scan(&v.Key, &v.Value, &v.Created, &v.Updated); err != nil {
			return err
		}
		if !utf8.ValidString(v.Key) || !utf8.ValidString(v.Value) {
			return malformed("kv_store: row %d is not UTF-8", len(r.values)+1)
		}
		r.values = append(r.values, v)
		return nil
	})
}

// writeValues keeps the rows in the directory of the sandbox that is being made.
func writeValues(dir string, values []keyValue) error {
	if len(values) == 0 {
		return nil
	}
	var text []byte
	for _, v := range values {
		text = append(append(text, encode(v)...), '\n')
	}
	if err := safefs.WriteDurably(dir, keyValueFile, text); err != nil {
		return record.HostError("import", err)
	}
	return nil
}

// keyValues writes the rows that came with an import.
func (w *agentfsWriter) keyValues(s *record.Sandbox) error {
	f, err := os.Open(filepath.Join(s.Dir(), keyValueFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return record.HostError("export", err)
	}
	defer f.Close()
	rows := json.NewDecoder(bufio.NewReader(f))
	for rows.More() {
		var v keyValue
		if err := rows.Decode(&v); err != nil {
			return record.HostError("export: "+keyValueFile, err)
		}
		if err := w.exec("INSERT INTO kv_store (key, value, created_at, updated_at) VALUES (?, ?, ?, ?)", v.Key, v.Value, v.Created, v.Updated); err != nil {
			return err
		}
	}
	return nil
}

func rowsOf(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}
