package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// ExportFormat is the format of an export (docs/export.md).
type ExportFormat string

// The formats.
const (
	ExportAgentFS ExportFormat = "agentfs" // an SQLite database that AgentFS opens; it has the audit log and the policy, too
	ExportTar     ExportFormat = "tar"     // without deletions
	ExportOCI     ExportFormat = "oci"     // an image with one layer
	ExportPatch   ExportFormat = "patch"   // for git apply; without binary files and directories
)

// Exported is what an export has.
type Exported struct {
	SizeBytes int64
	Entries   int // files, directories, links and special files
	Deletions int // among the changes; ExportTar does not hold them
	LeftOut   []LeftOut
	Notes     []string // what else it does not have, for people
}

// LeftOut is a change that an export does not have.
type LeftOut struct {
	Path   string
	Reason string // for people
}

// Export writes what the sandbox changed to w as one file, without what the policy hides. The
// sandbox may run. mount names a mount, to take its changes; "" takes those of the workspace.
// After an error, what was written is incomplete. Errors: ErrInvalid for an unknown format;
// ErrExhausted for more than 4 GiB, and while the owner receives two exports; ErrUnsupported if the
// format cannot hold a change.
func (s *Sandbox) Export(ctx context.Context, w io.Writer, format ExportFormat, mount string) (Exported, error) {
	wanted, known := value[sandboxv1.ExportFormat]("EXPORT_FORMAT_", string(format), sandboxv1.ExportFormat_value)
	if !known {
		return Exported{}, failure("export", "unknown format "+vpath.Quote(string(format)), ErrInvalid)
	}
	ctx, cancel := context.WithCancel(ctx) // ends the stream if w fails
	defer cancel()
	from, err := s.c.exports.ExportChanges(ctx, &sandboxv1.ExportChangesRequest{SandboxId: s.ID, Format: wanted, Mount: mount})
	if err != nil {
		return Exported{}, s.c.fail(ctx, "export", err)
	}
	var e Exported
	var size int64
	for {
		m, err := from.Recv()
		switch {
		case errors.Is(err, io.EOF) && size == e.SizeBytes:
			return e, nil
		case errors.Is(err, io.EOF):
			return e, failure("export", "the server sent another number of bytes than it announced", ErrInternal)
		case err != nil:
			return e, s.c.fail(ctx, "export", err)
		}
		e.add(m)
		size += int64(len(m.GetData()))
		if _, err := w.Write(m.GetData()); err != nil {
			return e, s.c.contentError(ctx, "export", stream.Unwritten{Err: err})
		}
	}
}

// add adds what a message says.
func (e *Exported) add(m *sandboxv1.ExportChangesResponse) {
	if s := m.GetSummary(); s != nil {
		e.SizeBytes, e.Entries, e.Deletions, e.Notes = s.SizeBytes, int(s.Entries), int(s.Deletions), s.Notes
	}
	if l := m.GetLeftOut(); l != nil {
		e.LeftOut = append(e.LeftOut, LeftOut{vpath.DecodeText(l.Path), l.Reason})
	}
}

// QueryOptions bound a query. The zero value is 10,000 rows and 10 seconds.
type QueryOptions struct {
	MaxRows int           // at most 1,000,000
	Timeout time.Duration // at most 60 s
}

// QueryResult is what a query found.
type QueryResult struct {
	Columns []string
	// Rows have a value for each column: nil, an int64, a float64, a string, which may not be
	// UTF-8, or a []byte.
	Rows [][]any
	More bool // there are more rows than MaxRows
}

// SQL answers one statement of SQLite that begins with SELECT, WITH or VALUES about the tables
// changes, audit, network and processes of the sandbox (docs/export.md). Errors: ErrInvalid for
// another statement and for a mistake in it; ErrTimeout; ErrExhausted for a result above 64 MiB, a
// query that needs too much memory, and while two queries of the owner run.
func (s *Sandbox) SQL(ctx context.Context, statement string, o QueryOptions) (QueryResult, error) {
	r := &sandboxv1.QuerySandboxRequest{SandboxId: s.ID, Statement: statement, MaxRows: int32(o.MaxRows)}
	if o.Timeout != 0 {
		r.Timeout = durationpb.New(o.Timeout)
	}
	m, err := s.c.exports.QuerySandbox(ctx, r)
	if err != nil {
		return QueryResult{}, s.c.fail(ctx, "sql", err)
	}
	found := QueryResult{Columns: m.Columns, More: m.More}
	for _, row := range m.Rows {
		values := make([]any, len(row.Values))
		for i, v := range row.Values {
			values[i] = queryValue(v)
		}
		found.Rows = append(found.Rows, values)
	}
	return found, nil
}

func queryValue(v *sandboxv1.QueryValue) any {
	switch v := v.GetValue().(type) {
	case *sandboxv1.QueryValue_Integer:
		return v.Integer
	case *sandboxv1.QueryValue_Real:
		return v.Real
	case *sandboxv1.QueryValue_Text:
		return v.Text
	case *sandboxv1.QueryValue_TextBytes:
		return string(v.TextBytes)
	case *sandboxv1.QueryValue_Blob:
		return v.Blob
	}
	return nil
}
