package service

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/portable"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// exportServer answers the calls of ExportService. What they tell needs the scope read, as the
// calls Diff and Audit do (see scopeOf): an export in the format agentfs and a query have the whole
// audit log, and the export has the rules too.
type exportServer struct {
	sandboxv1.UnimplementedExportServiceServer
	service *Service
}

// The limits of exports. An export is stored while its client receives it.
const (
	maxExportBytes  = 4 << 30
	exportsPerOwner = 2
)

// exportsDir is where exports are written. Recover empties it.
func (s *Service) exportsDir() string { return filepath.Join(s.home.Dir(), "exports") }

// ExportChanges sends what a sandbox changed as one file.
func (c *exportServer) ExportChanges(m *sandboxv1.ExportChangesRequest, to sandboxv1.ExportService_ExportChangesServer) (err error) {
	ctx := to.Context()
	r, err := wireconv.DecodeExportChanges(m)
	if err != nil {
		return err
	}
	part, err := c.service.changesToRead(ctx, r.Sandbox, r.Mount)
	if err != nil {
		return err
	}
	leave, err := c.service.exports.enter(part.Record().Served.OwnerID, ration{most: exportsPerOwner, resource: "exports"})
	if err != nil {
		return err
	}
	defer leave()
	f, result, err := c.service.export(ctx, part, r.Format)
	if err != nil {
		return err
	}
	defer f.Close()
	return sendExport(to, f, result)
}

// export writes an export to a file that no name leads to: it goes when it is closed.
func (s *Service) export(ctx context.Context, part *record.Sandbox, format string) (f *os.File, result portable.Result, err error) {
	failed := func(err error) error { return errdefs.New(errdefs.Internal, "export: %w", err) }
	if err := os.MkdirAll(s.exportsDir(), 0o700); err != nil {
		return nil, result, failed(err)
	}
	dir, err := os.MkdirTemp(s.exportsDir(), "")
	if err != nil {
		return nil, result, failed(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name := filepath.Join(dir, "export")
	source := part.Record().Served.CodebaseID
	if part.Mount() != "" {
		source = part.Mount()
	}
	if result, err = portable.Formats[format](ctx, part, name, portable.Options{MostBytes: maxExportBytes, Source: source}); err != nil {
		return nil, result, err
	}
	if f, err = os.Open(name); err != nil {
		return nil, result, failed(err)
	}
	return f, result, nil
}

// sendExport sends the summary, what is left out, and the file.
func sendExport(to sandboxv1.ExportService_ExportChangesServer, f *os.File, result portable.Result) error {
	info, err := f.Stat()
	if err != nil {
		return errdefs.New(errdefs.Internal, "export: %w", err)
	}
	summary := wireconv.EncodeExportSummary(wireconv.ExportSummary{
		SizeBytes: info.Size(), Entries: result.Entries, Deletions: result.Deletions, LeftOut: len(result.Skipped), Notes: result.Notes,
	})
	if err := to.Send(&sandboxv1.ExportChangesResponse{Message: &sandboxv1.ExportChangesResponse_Summary{Summary: summary}}); err != nil {
		return err
	}
	for _, skipped := range result.Skipped {
		m := &sandboxv1.ExportChangesResponse_LeftOut{LeftOut: wireconv.EncodeLeftOut(skipped)}
		if err := to.Send(&sandboxv1.ExportChangesResponse{Message: m}); err != nil {
			return err
		}
	}
	return eachPiece(f, func(data []byte) error {
		return to.Send(&sandboxv1.ExportChangesResponse{Message: &sandboxv1.ExportChangesResponse_Data{Data: data}})
	})
}

// eachPiece calls send with a file in pieces, which the message may keep.
func eachPiece(f io.Reader, send func([]byte) error) error {
	for {
		buffer := make([]byte, chunkBytes)
		n, err := io.ReadFull(f, buffer)
		if n > 0 {
			if err := send(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return errdefs.New(errdefs.Internal, "export: %w", err)
		}
	}
}

// The limits of queries. Those of one owner leave room for others.
const (
	queryMemoryBytes = 256 << 20
	queriesAtOnce    = 4
	queriesPerOwner  = 2
)

// queries are those that run or wait.
type queries struct {
	underWay
	turn chan struct{} // holds one for each query that runs
}

// begin waits for the turn of an owner's query. Errors: Exhausted; Canceled.
func (q *queries) begin(ctx context.Context, owner string) (end func(), err error) {
	leave, err := q.enter(owner, ration{most: queriesPerOwner, resource: "queries"})
	if err != nil {
		return nil, err
	}
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, errdefs.New(errdefs.Canceled, "sql: %w", ctx.Err())
	}
}

// QuerySandbox answers a query about a sandbox.
func (c *exportServer) QuerySandbox(ctx context.Context, m *sandboxv1.QuerySandboxRequest) (*sandboxv1.QuerySandboxResponse, error) {
	r, err := wireconv.DecodeQuerySandbox(m)
	if err != nil {
		return nil, err
	}
	sb, err := c.service.sandbox(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	end, err := c.service.queries.begin(ctx, sb.Record().Served.OwnerID)
	if err != nil {
		return nil, err
	}
	defer end()
	rows, err := portable.Query(ctx, sb, r.Statement, query.Bounds{Rows: r.Rows, Time: r.Time, MemoryBytes: queryMemoryBytes})
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeQueryRows(wireconv.QueryRows(rows)), nil
}
