package portable

import (
	"cmp"
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Tables are the tables of Query, as SQL. In a database of AgentFS their names have the prefix
// agentfense_. docs/export.md explains the columns.
const Tables = `
CREATE TABLE changes (path TEXT PRIMARY KEY, status TEXT NOT NULL, type TEXT NOT NULL, mode INTEGER NOT NULL, size INTEGER NOT NULL, mtime TEXT NOT NULL);
CREATE TABLE audit (seq INTEGER NOT NULL, time TEXT NOT NULL, event TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE network (seq INTEGER NOT NULL, time TEXT NOT NULL, allowed INTEGER NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL,
  address TEXT NOT NULL, rule TEXT NOT NULL, sent_bytes INTEGER, received_bytes INTEGER, reason TEXT NOT NULL, count INTEGER NOT NULL);
CREATE TABLE processes (seq INTEGER NOT NULL, time TEXT NOT NULL, exec TEXT NOT NULL, command TEXT NOT NULL, dir TEXT NOT NULL,
  exit_code INTEGER NOT NULL, signal TEXT NOT NULL, error TEXT NOT NULL, duration_ms INTEGER NOT NULL,
  cpu_user_ms INTEGER NOT NULL, cpu_system_ms INTEGER NOT NULL, max_rss_bytes INTEGER NOT NULL);
`

// fillTables makes Tables with a prefix and fills them with the changes and the audit log.
func fillTables(ctx context.Context, tx *sql.Tx, prefix string, d *delta, s *record.Sandbox) error {
	t := &tables{ctx: ctx, tx: tx, prefix: prefix}
	if _, err := tx.ExecContext(ctx, strings.ReplaceAll(Tables, "CREATE TABLE ", "CREATE TABLE "+prefix)); err != nil {
		return err
	}
	for i := range d.entries {
		if err := t.change(&d.entries[i]); err != nil {
			return err
		}
	}
	err := audit.Read(s.AuditPath(), func(r audit.Record) error {
		if _, is := r.Event.(audit.Archived); is {
			d.notes = append(d.notes, "the older part of the audit log was archived: it is not in the tables audit, network and processes")
		}
		return t.record(r)
	})
	if errdefs.Is(err, errdefs.NotFound) {
		d.notes = append(d.notes, "the audit log was archived: the tables audit, network and processes are empty")
		return nil
	}
	return err
}

// tables fills Tables.
type tables struct {
	ctx    context.Context
	tx     *sql.Tx
	prefix string
}

func (t *tables) insert(table string, values ...any) error {
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ")
	_, err := t.tx.ExecContext(t.ctx, "INSERT INTO "+t.prefix+table+" VALUES ("+marks+")", values...) //nolint:gosec // our own names of tables
	return err
}

func (t *tables) change(e *entry) error {
	status := "added"
	switch {
	case e.deleted:
		status = "deleted"
	case e.baseIno != 0:
		status = "modified"
	}
	mtime := time.Unix(e.info.Mtime.Unix()).UTC().Format(query.TimeFormat)
	return t.insert("changes", e.path.String(), status, record.TypeName(e.info.Mode), e.info.Mode&0o7777, e.info.Size, mtime)
}

func (t *tables) record(r audit.Record) error {
	at := r.Time.UTC().Format(query.TimeFormat)
	if _, malformed := r.Event.(audit.Malformed); malformed {
		return nil // it has no number; audit --verify finds it
	}
	seq := int64(r.Seq)
	if err := t.insert("audit", seq, at, string(r.Event.Kind()), string(r.Raw)); err != nil {
		return err
	}
	switch e := r.Event.(type) {
	case audit.NetworkAllowed:
		return t.insert("network", seq, at, 1, text(e.Host), e.Port, e.Address, text(e.Rule), known(e.SentBytes), known(e.ReceivedBytes), text(e.Error), 1)
	case audit.NetworkDenied:
		return t.insert("network", seq, at, 0, text(e.Host), e.Port, "", "", nil, nil, text(e.Reason), e.Count)
	case audit.CommandExecuted:
		return t.insert("processes", seq, at, e.Exec, commandOf(&e), text(e.Dir), e.ExitCode, e.Signal, text(e.Error), e.DurationMS, e.CPUUserMS, e.CPUSystemMS, e.MaxRSSBytes)
	}
	return nil
}

// known returns a count of bytes, or NULL for -1.
func known(n int64) any {
	if n < 0 {
		return nil
	}
	return n
}

// text returns a name from a sandbox without control characters.
func text(t audit.Text) string { return vpath.Escape(string(t)) }

// commandOf returns the arguments of a command as a JSON array.
func commandOf(e *audit.CommandExecuted) string {
	if e.Argv == nil {
		return "[]"
	}
	return string(encode(e.Argv))
}

// toolCalls writes a row for each command, as AgentFS has them for the calls of tools.
func (w *agentfsWriter) toolCalls(s *record.Sandbox) error {
	err := audit.Read(s.AuditPath(), func(r audit.Record) error {
		e, is := r.Event.(audit.CommandExecuted)
		if !is {
			return nil
		}
		parameters := string(encode(map[string]any{"argv": e.Argv, "dir": e.Dir}))
		var result, failure any
		status := "success"
		if e.Error != "" || e.Signal != "" || e.ExitCode != 0 {
			status, failure = "error", cmp.Or(text(e.Error), string(encode(map[string]any{"exit_code": e.ExitCode, "signal": e.Signal})))
		} else {
			result = string(encode(map[string]any{"exit_code": 0}))
		}
		started := r.Time.Add(-time.Duration(e.DurationMS) * time.Millisecond)
		return w.exec(`INSERT INTO tool_calls (name, parameters, result, error, status, started_at, completed_at, duration_ms)
VALUES ('exec', ?, ?, ?, ?, ?, ?, ?)`, parameters, result, failure, status, started.Unix(), r.Time.Unix(), e.DurationMS)
	})
	if errdefs.Is(err, errdefs.NotFound) {
		return nil
	}
	return err
}
