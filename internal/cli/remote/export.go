package remote

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Export writes the changes of a server's sandbox to a new file.
func (b *Backend) Export(ctx context.Context, name, mount, file, format string) (result backend.ExportResult, err error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return result, err
	}
	n, err := safefs.CreateNew(file)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, n.Discard()) }()
	f, err := os.OpenFile(n.Temporary, os.O_WRONLY, 0)
	if err != nil {
		return result, errdefs.New(safefs.Kind(err), "export: %w", err)
	}
	result, err = b.receiveExport(ctx, f, wireconv.ExportChanges{Sandbox: sb.Record.ID, Mount: mount, Format: format})
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = errdefs.New(safefs.Kind(closeErr), "export: %w", closeErr)
	}
	if err != nil {
		return backend.ExportResult{}, err
	}
	return result, n.Commit()
}

// receiveExport writes an export to w.
func (c *Client) receiveExport(ctx context.Context, w io.Writer, r wireconv.ExportChanges) (result backend.ExportResult, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if w fails
	defer cancel()
	from, err := c.exports.ExportChanges(ctx, wireconv.EncodeExportChanges(r))
	if err != nil {
		return result, c.failed(err)
	}
	var size, announced int64
	for {
		m, err := from.Recv()
		switch {
		case errors.Is(err, io.EOF) && size == announced:
			return result, nil
		case errors.Is(err, io.EOF):
			return result, errdefs.New(errdefs.Internal, "export: the server sent %d of %d bytes", size, announced)
		case err != nil:
			return result, c.failed(err)
		}
		if s := m.GetSummary(); s != nil {
			summary := wireconv.DecodeExportSummary(s)
			announced = summary.SizeBytes
			result.Entries, result.Deletions, result.Notes = summary.Entries, summary.Deletions, summary.Notes
		}
		if l := m.GetLeftOut(); l != nil {
			skipped, err := wireconv.DecodeLeftOut(l)
			if err != nil {
				return result, err
			}
			result.Skipped = append(result.Skipped, skipped)
		}
		size += int64(len(m.GetData()))
		if _, err := w.Write(m.GetData()); err != nil {
			return result, errdefs.New(safefs.Kind(err), "export: %w", err)
		}
	}
}

// Query asks a server a query about a sandbox.
func (b *Backend) Query(ctx context.Context, name, statement string, bounds backend.QueryBounds) (backend.QueryRows, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return backend.QueryRows{}, err
	}
	r := wireconv.QuerySandbox{Sandbox: sb.Record.ID, Statement: statement, Rows: bounds.Rows, Time: bounds.Time}
	m, err := b.exports.QuerySandbox(ctx, wireconv.EncodeQuerySandbox(r))
	if err != nil {
		return backend.QueryRows{}, b.failed(err)
	}
	rows, err := wireconv.DecodeQueryRows(m)
	return backend.QueryRows(rows), err
}
