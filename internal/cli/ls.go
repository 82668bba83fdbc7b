package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
)

// listing is the JSON document of `ls`.
type listing struct {
	SchemaVersion int           `json:"schema_version"`
	Sandboxes     []listedEntry `json:"sandboxes"`
}

type listedEntry struct {
	Name      string          `json:"name"`
	ID        record.ID       `json:"id"`
	Status    string          `json:"status"` // "running" or "stopped"; a server's also "pending" or "error"
	Source    record.HostPath `json:"source"` // of a server's sandbox the codebase's id: its paths stay there
	Policy    string          `json:"policy"`
	CreatedAt time.Time       `json:"created_at"`
	// What it holds, found by a bounded look: with _more there is more. Absent where
	// nobody can tell.
	Changes     *int   `json:"pending_changes,omitempty"`
	MoreChanges bool   `json:"pending_changes_more,omitempty"`
	DiskBytes   *int64 `json:"disk_bytes,omitempty"`
	MoreDisk    bool   `json:"disk_bytes_more,omitempty"`
	// Board says that programs inside may use the board of the source.
	Board bool `json:"board,omitempty"`
	// Scratch are the directories of the workspace that are not reviewed.
	Scratch []scratch.Path `json:"scratch,omitempty"`
	Git     cleangit.Mode  `json:"git,omitempty"` // of a clean repository, with its depth
	// Of a server's sandbox.
	CodebaseID string            `json:"codebase_id,omitempty"`
	OwnerID    string            `json:"owner_id,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	ExpiresAt  time.Time         `json:"expires_at,omitzero"`
}

func newLs(e *env) *cobra.Command {
	var asJSON, quiet bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the sandboxes",
		Long: `List the sandboxes with their age, how many changes wait to be applied, and what
they take on the disk. It looks at 2000 entries of a sandbox at most: of a larger
one it shows that much, and a "+".`,
		Example: `  agentfense ls
  agentfense ls --json`,
		Args: cobra.NoArgs,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runLs(ctx, e, b, asJSON, quiet) })
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the names only")
	return cmd
}

func runLs(ctx context.Context, e *env, b backend.Backend, asJSON, quiet bool) error {
	all, err := b.Sandboxes(ctx, !quiet)
	if all == nil && err != nil {
		return err
	}
	entries := []listedEntry{}
	for _, sb := range all {
		entry := listedOf(sb.Record, string(sb.Status))
		if sb.Usage != nil {
			entry.holds(*sb.Usage)
		}
		entries = append(entries, entry)
	}
	return errors.Join(e.printListing(entries, asJSON, quiet), err)
}

func (l *listedEntry) holds(u held.Usage) {
	l.Changes, l.MoreChanges = &u.Changes, u.More
	l.DiskBytes, l.MoreDisk = &u.DiskBytes, u.MoreDisk
}

func listedOf(r record.Record, status string) listedEntry {
	entry := listedEntry{
		Name: r.Name, ID: r.ID, Status: status, Source: r.Source.Path, Policy: r.PolicyNote, CreatedAt: r.CreatedAt,
		Board: r.Board, Scratch: r.Scratch, Git: r.Git,
	}
	if s := r.Served; s != nil {
		entry.CodebaseID, entry.OwnerID, entry.Labels, entry.ExpiresAt = s.CodebaseID, s.OwnerID, s.Labels, s.ExpiresAt
		entry.Source = cmp.Or(entry.Source, record.HostPath(s.CodebaseID))
	}
	return entry
}

func (e *env) printListing(entries []listedEntry, asJSON, quiet bool) error {
	if asJSON {
		return e.printJSON(listing{SchemaVersion: schemaVersion, Sandboxes: entries})
	}
	var rows [][]string
	for _, entry := range entries {
		row := []string{entry.Name, entry.Status, formatAge(time.Since(entry.CreatedAt)), entry.changes(), entry.disk(), entry.Policy, entry.Source.String()}
		if quiet {
			row = row[:1]
		}
		rows = append(rows, row)
	}
	if quiet {
		return printRows(e.stdout, rows)
	}
	return printTable(e.stdout, []string{"NAME", "STATUS", "AGE", "CHANGES", "DISK", "POLICY", "SOURCE"}, rows)
}

// unknown stands in a table for what nobody can tell.
const unknown = "-"

func (l *listedEntry) changes() string {
	switch {
	case l.Changes == nil:
		return unknown
	case l.MoreChanges:
		return fmt.Sprintf("%d+", *l.Changes)
	}
	return fmt.Sprint(*l.Changes)
}

func (l *listedEntry) disk() string {
	switch {
	case l.DiskBytes == nil:
		return unknown
	case l.MoreDisk:
		return formatBytes(*l.DiskBytes) + "+"
	}
	return formatBytes(*l.DiskBytes)
}

// formatAge writes a duration in its largest unit.
func formatAge(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd", d/day)
	case d >= time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(0, d/time.Second))
}
