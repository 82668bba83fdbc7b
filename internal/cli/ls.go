package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/sandbox"
)

// listing is the JSON document of `ls`.
type listing struct {
	SchemaVersion int           `json:"schema_version"`
	Sandboxes     []listedEntry `json:"sandboxes"`
}

type listedEntry struct {
	Name      string           `json:"name"`
	ID        sandbox.ID       `json:"id"`
	Status    string           `json:"status"` // "running" or "stopped"
	Source    sandbox.HostPath `json:"source"`
	Policy    string           `json:"policy"`
	CreatedAt time.Time        `json:"created_at"`
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
		Example: `  agentfense ls
  agentfense ls --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runLs(cmd.Context(), e, asJSON, quiet)
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the names only")
	return cmd
}

func runLs(ctx context.Context, e *env, asJSON, quiet bool) error {
	home, err := e.openHome()
	if err != nil {
		return err
	}
	all, damaged := home.List()
	doc := listing{SchemaVersion: schemaVersion, Sandboxes: []listedEntry{}}
	var rows [][]string
	for _, sb := range all {
		r := sb.Record()
		status, err := statusOf(ctx, sb)
		if err != nil {
			return err
		}
		entry := listedEntry{
			Name: r.Name, ID: r.ID, Status: status, Source: r.Source.Path, Policy: r.PolicyNote, CreatedAt: r.CreatedAt,
		}
		if s := r.Served; s != nil {
			entry.CodebaseID, entry.OwnerID, entry.Labels, entry.ExpiresAt = s.CodebaseID, s.OwnerID, s.Labels, s.ExpiresAt
		}
		doc.Sandboxes = append(doc.Sandboxes, entry)
		row := []string{r.Name, status, r.PolicyNote, r.CreatedAt.Local().Format(time.DateTime), r.Source.Path.String()}
		if quiet {
			row = row[:1]
		}
		rows = append(rows, row)
	}
	switch {
	case asJSON:
		err = e.printJSON(doc)
	case quiet:
		err = printRows(e.stdout, rows)
	default:
		err = printTable(e.stdout, []string{"NAME", "STATUS", "POLICY", "CREATED", "SOURCE"}, rows)
	}
	if err != nil {
		return err
	}
	return damaged
}

// statusOf says whether a supervisor lives.
func statusOf(ctx context.Context, sb *sandbox.Sandbox) (string, error) {
	c, err := client(ctx, sb)
	if err != nil {
		return "", err
	}
	if c == nil {
		return "stopped", nil
	}
	return "running", nil
}
