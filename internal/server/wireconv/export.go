package wireconv

import (
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// ExportFormat maps the formats of an export, by the words of the command line.
var ExportFormat = enum(map[string]sandboxv1.ExportFormat{
	"agentfs": sandboxv1.ExportFormat_EXPORT_FORMAT_AGENTFS,
	"tar":     sandboxv1.ExportFormat_EXPORT_FORMAT_TAR,
	"oci":     sandboxv1.ExportFormat_EXPORT_FORMAT_OCI,
	"patch":   sandboxv1.ExportFormat_EXPORT_FORMAT_PATCH,
}, "agentfs")

// ExportChanges asks for the changes of a sandbox, or in its mount, as a file.
type ExportChanges struct {
	Sandbox id.Sandbox
	Mount   string
	Format  string
}

// DecodeExportChanges reads a request.
func DecodeExportChanges(r *sandboxv1.ExportChangesRequest) (x ExportChanges, err error) {
	if x.Sandbox, x.Mount, err = changesOf(r); err == nil {
		x.Format, err = ExportFormat.Parse("format", r.GetFormat())
	}
	return x, err
}

// EncodeExportChanges is the reverse of DecodeExportChanges.
func EncodeExportChanges(x ExportChanges) *sandboxv1.ExportChangesRequest {
	return &sandboxv1.ExportChangesRequest{SandboxId: string(x.Sandbox), Mount: x.Mount, Format: ExportFormat.Encode(x.Format)}
}

// ExportSummary is what an export has.
type ExportSummary struct {
	SizeBytes          int64
	Entries, Deletions int
	LeftOut            int
	Notes              []string
}

// EncodeExportSummary returns the first message of an export.
func EncodeExportSummary(s ExportSummary) *sandboxv1.ExportSummary {
	return &sandboxv1.ExportSummary{
		SizeBytes: s.SizeBytes, Entries: int64(s.Entries), Deletions: int64(s.Deletions), LeftOut: int64(s.LeftOut), Notes: s.Notes,
	}
}

// DecodeExportSummary is the reverse of EncodeExportSummary.
func DecodeExportSummary(m *sandboxv1.ExportSummary) ExportSummary {
	s := ExportSummary{SizeBytes: m.GetSizeBytes(), Entries: int(m.GetEntries()), Deletions: int(m.GetDeletions()), LeftOut: int(m.GetLeftOut())}
	for _, note := range m.GetNotes() {
		s.Notes = append(s.Notes, vpath.EscapeMessage(note))
	}
	return s
}

// LeftOut is a change that an export does not have.
type LeftOut = struct {
	Path vpath.Path
	Why  string
}

// EncodeLeftOut returns a change that an export does not have.
func EncodeLeftOut(l LeftOut) *sandboxv1.ExportLeftOut {
	return &sandboxv1.ExportLeftOut{Path: l.Path.Text(), Reason: l.Why}
}

// DecodeLeftOut is the reverse of EncodeLeftOut.
func DecodeLeftOut(m *sandboxv1.ExportLeftOut) (LeftOut, error) {
	p, err := vpath.ParseText(m.GetPath())
	return LeftOut{p, vpath.EscapeMessage(m.GetReason())}, err
}

// The bounds of queries of a server.
const (
	MaxQueryRows     = 1_000_000
	MaxQueryTime     = time.Minute
	defaultQueryRows = 10_000
	defaultQueryTime = 10 * time.Second
)

// QuerySandbox asks a query about a sandbox.
type QuerySandbox struct {
	Sandbox   id.Sandbox
	Statement string
	Rows      int
	Time      time.Duration
}

// DecodeQuerySandbox reads a request.
func DecodeQuerySandbox(r *sandboxv1.QuerySandboxRequest) (q QuerySandbox, err error) {
	q = QuerySandbox{Statement: r.GetStatement(), Rows: int(r.GetMaxRows())}
	if q.Sandbox, err = SandboxID(r); err != nil {
		return q, err
	}
	switch {
	case q.Rows < 0 || q.Rows > MaxQueryRows:
		return q, errdefs.New(errdefs.Invalid, "max_rows: %d: want 1 to %d", q.Rows, MaxQueryRows)
	case q.Rows == 0:
		q.Rows = defaultQueryRows
	}
	q.Time, err = requestDuration("timeout", r.GetTimeout())
	switch {
	case err != nil:
	case q.Time > MaxQueryTime:
		err = errdefs.New(errdefs.Invalid, "timeout: %s is longer than %s", q.Time, MaxQueryTime)
	case q.Time == 0:
		q.Time = defaultQueryTime
	}
	return q, err
}

// EncodeQuerySandbox is the reverse of DecodeQuerySandbox.
func EncodeQuerySandbox(q QuerySandbox) *sandboxv1.QuerySandboxRequest {
	return &sandboxv1.QuerySandboxRequest{SandboxId: string(q.Sandbox), Statement: q.Statement, MaxRows: int32(q.Rows), Timeout: durationpb.New(q.Time)}
}

// QueryRows are what a query found. A value is nil, an int64, a float64, a string or a []byte.
type QueryRows struct {
	Columns []string
	Values  [][]any
	More    bool
}

// EncodeQueryRows returns what a query found.
func EncodeQueryRows(rows QueryRows) *sandboxv1.QuerySandboxResponse {
	m := &sandboxv1.QuerySandboxResponse{More: rows.More}
	for _, name := range rows.Columns {
		m.Columns = append(m.Columns, validText(name))
	}
	for _, values := range rows.Values {
		row := &sandboxv1.QueryRow{}
		for _, v := range values {
			row.Values = append(row.Values, encodeQueryValue(v))
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

func encodeQueryValue(v any) *sandboxv1.QueryValue {
	switch v := v.(type) {
	case int64:
		return &sandboxv1.QueryValue{Value: &sandboxv1.QueryValue_Integer{Integer: v}}
	case float64:
		return &sandboxv1.QueryValue{Value: &sandboxv1.QueryValue_Real{Real: v}}
	case string:
		if !utf8.ValidString(v) {
			return &sandboxv1.QueryValue{Value: &sandboxv1.QueryValue_TextBytes{TextBytes: []byte(v)}}
		}
		return &sandboxv1.QueryValue{Value: &sandboxv1.QueryValue_Text{Text: v}}
	case []byte:
		return &sandboxv1.QueryValue{Value: &sandboxv1.QueryValue_Blob{Blob: v}}
	}
	return &sandboxv1.QueryValue{}
}

// DecodeQueryRows is the reverse of EncodeQueryRows. Errors: Internal for a row without a value for
// each column.
func DecodeQueryRows(m *sandboxv1.QuerySandboxResponse) (QueryRows, error) {
	rows := QueryRows{Columns: m.GetColumns(), More: m.GetMore()}
	for _, row := range m.GetRows() {
		if len(row.GetValues()) != len(rows.Columns) {
			return rows, errdefs.New(errdefs.Internal, "sql: the server sent a row with %d values for %d columns", len(row.GetValues()), len(rows.Columns))
		}
		values := make([]any, len(row.GetValues()))
		for i, v := range row.GetValues() {
			values[i] = DecodeQueryValue(v)
		}
		rows.Values = append(rows.Values, values)
	}
	return rows, nil
}

// DecodeQueryValue returns a value as QueryRows has it.
func DecodeQueryValue(v *sandboxv1.QueryValue) any {
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
