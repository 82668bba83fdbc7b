package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// QueryBounds are query.Bounds.
type QueryBounds = backend.QueryBounds

// QueryRows are query.Rows.
type QueryRows = backend.QueryRows

type sqlOptions struct {
	QueryBounds
	JSON bool
}

// The largest bounds of sql, and its bound of memory.
const (
	queryMemory  = 256 << 20
	maxQueryRows = 1_000_000
	maxQueryTime = 10 * time.Minute
)

func newSQL(e *env) *cobra.Command {
	var o sqlOptions
	cmd := &cobra.Command{
		Use:   "sql NAME STATEMENT",
		Short: "Query the changes, audit log, network and commands of a sandbox with SQL",
		Long: `Answer one SELECT statement of SQLite about a sandbox. The tables are:

  changes    path, status, type, mode, size, mtime
  audit      seq, time, event, record (JSON)
  network    seq, time, allowed, host, port, address, rule, sent_bytes, received_bytes,
             reason, count
  processes  seq, time, exec, command (JSON), dir, exit_code, signal, error, duration_ms,
             cpu_user_ms, cpu_system_ms, max_rss_bytes

The tables are a copy: the statement changes nothing, and opens no other file.
docs/export.md explains the columns.`,
		Example: `  agentfense sql fix "select path, size from changes order by size desc limit 10"
  agentfense sql fix "select host, sum(sent_bytes) from network where allowed group by host"
  agentfense sql fix "select command, exit_code from processes" --json`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = e.eitherWay(func(ctx context.Context, s backend.Export, args []string) error {
		return runSQL(ctx, e, s, args[0], args[1], o)
	})
	f := cmd.Flags()
	f.IntVar(&o.Rows, "rows", 10_000, "print at most `N` rows")
	f.DurationVar(&o.Time, "timeout", 10*time.Second, "end a query that takes longer than `DURATION`")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

func runSQL(ctx context.Context, e *env, s backend.Export, name, statement string, o sqlOptions) error {
	if o.Rows < 1 || o.Rows > maxQueryRows {
		return usageError{errdefs.New(errdefs.Invalid, "--rows %d: want 1 to %d", o.Rows, maxQueryRows)}
	}
	if o.Time <= 0 || o.Time > maxQueryTime {
		return usageError{errdefs.New(errdefs.Invalid, "--timeout %s: want more than 0 and at most %s", o.Time, maxQueryTime)}
	}
	o.MemoryBytes = queryMemory
	rows, err := s.Query(ctx, name, statement, o.QueryBounds)
	if err != nil {
		return err
	}
	if o.JSON {
		return e.printJSON(rowsJSON(&rows))
	}
	return e.printQuery(&rows, o.Rows)
}

type queryJSON struct {
	SchemaVersion int      `json:"schema_version"`
	Columns       []string `json:"columns"`
	Rows          [][]any  `json:"rows"` // a blob is an object with its bytes in base64
	More          bool     `json:"more"` // rows are left out
}

type blobJSON struct {
	Base64 []byte `json:"base64"`
}

func rowsJSON(rows *QueryRows) queryJSON {
	out := queryJSON{SchemaVersion: schemaVersion, Columns: rows.Columns, Rows: make([][]any, len(rows.Values)), More: rows.More}
	for i, values := range rows.Values {
		out.Rows[i] = values
		for j, v := range values {
			if blob, is := v.([]byte); is {
				values[j] = blobJSON{blob}
			}
		}
	}
	return out
}

func (e *env) printQuery(rows *QueryRows, most int) error {
	head := make([]string, len(rows.Columns))
	for i, name := range rows.Columns {
		head[i] = vpath.Escape(name)
	}
	cells := make([][]string, len(rows.Values))
	for i, values := range rows.Values {
		cells[i] = make([]string, len(values))
		for j, v := range values {
			cells[i][j] = cellOf(v)
		}
	}
	if err := printTable(e.stdout, head, cells); err != nil {
		return err
	}
	if rows.More {
		e.say("only the first %s: --rows prints more", plural(most, "row"))
	}
	return nil
}

// cellOf returns a value as SQLite writes it, without control characters.
func cellOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return strings.ReplaceAll(vpath.Escape(v), `\\`, `\`)
	case []byte:
		return "x'" + hex.EncodeToString(v) + "'"
	}
	return fmt.Sprint(v)
}
