package backend

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Export is what a server tells of a sandbox for use elsewhere. On this host, package portable
// tells it.
type Export interface {
	// Export writes the changes of a sandbox, or of its mount, to a new file in a format. Errors:
	// Exists; Exhausted; Unsupported for what the format cannot hold.
	Export(ctx context.Context, name, mount, file, format string) (ExportResult, error)
	// Query answers one SELECT statement about a sandbox. Errors: Invalid; Deadline; Exhausted.
	Query(ctx context.Context, name, statement string, b QueryBounds) (QueryRows, error)
}

// ExportResult is a portable.Result.
type ExportResult struct {
	Entries   int
	Deletions int
	Skipped   []ExportSkipped
	Notes     []string
}

// ExportSkipped is a portable.Skipped.
type ExportSkipped = struct {
	Path vpath.Path
	Why  string
}

// QueryBounds are query.Bounds. A server has its own bound of memory.
type QueryBounds struct {
	Rows        int
	Time        time.Duration
	MemoryBytes int64
}

// QueryRows are query.Rows.
type QueryRows struct {
	Columns []string
	Values  [][]any
	More    bool
}
