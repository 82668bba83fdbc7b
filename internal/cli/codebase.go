package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func newCodebase(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "codebase",
		Short: "Bring directories to a server, and back",
		Long: `Bring directories to a server as codebases, of which its sandboxes are made, and
back. The server is that of --endpoint, else of AGENTFENSE_ENDPOINT, else your own.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCodebasePush(e), newCodebaseLs(e), newCodebasePull(e), newCodebaseRm(e))
	return cmd
}

// asking makes cmd one that always asks a server.
func (e *env) asking(cmd *cobra.Command, do func(ctx context.Context, s backend.Server, args []string) error) {
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		address := e.address()
		if address == "" {
			var err error
			if address, err = e.defaultEndpoint(); err != nil {
				return err
			}
		}
		return e.onServer(cmd.Context(), address, func(ctx context.Context, s backend.Server) error {
			return do(ctx, s, args)
		})
	}
}

// pushOptions say what becomes of a directory.
type pushOptions struct {
	Name  string
	Owner string
	To    string // the codebase; "" for a new one
	JSON  bool
}

func newCodebasePush(e *env) *cobra.Command {
	var o pushOptions
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Upload a directory and print the id of its codebase",
		Long: `Upload a directory as a new codebase, or into the one that --to names, and print
its id. Modes, symbolic links and empty directories are kept. Left out is what
.gitignore and .sandboxignore at its root say, and by default .env, node_modules,
virtual environments and caches. The repository, .git, is uploaded unless
.sandboxignore names it. With --to, files are added and
replaced, and none is removed.`,
		Example: `  agentfense codebase push . --endpoint https://build:9000
  id=$(agentfense codebase push ~/src/app --name app)
  agentfense codebase push . --to cb_0123456789abcdef`,
		Args: cobra.ExactArgs(1),
	}
	e.asking(cmd, func(ctx context.Context, s backend.Server, args []string) error {
		p := e.progress("uploading")
		made, err := s.Push(ctx, backend.Push{Dir: args[0], To: o.To, Name: o.Name, Owner: o.Owner, Uploading: e.uploading(p)})
		p.stop()
		if err != nil {
			return err
		}
		if o.JSON {
			return e.printJSON(codebaseDocument{schemaVersion, made})
		}
		_, err = fmt.Fprintln(e.stdout, made.ID)
		return err
	})
	cmd.Flags().StringVar(&o.Name, "name", "", "name of the codebase (default: the directory's)")
	cmd.Flags().StringVar(&o.Owner, "owner", "", "owner of the codebase (default: the token's owner, else you)")
	cmd.Flags().StringVar(&o.To, "to", "", "`ID` of the codebase to upload into")
	jsonFlag(cmd, &o.JSON)
	cmd.MarkFlagsMutuallyExclusive("to", "name")
	cmd.MarkFlagsMutuallyExclusive("to", "owner")
	return cmd
}

// codebaseDocument is the JSON of one codebase.
type codebaseDocument struct {
	SchemaVersion int `json:"schema_version"`
	backend.Codebase
}

// uploading shows an upload on p, and tells what was not uploaded.
func (e *env) uploading(p *progress) backend.Uploading {
	return backend.Uploading{
		Progress: p.count,
		Skipped: func(paths []vpath.Path) {
			p.stop()
			for _, path := range paths {
				e.say("not uploaded: %s: not a file, directory or link", shown(path))
			}
		},
		Stays: func(id string, err error) {
			p.stop()
			e.say("codebase %s was created but the upload is incomplete: %s", id, oneLine(err))
		},
	}
}

func newCodebaseLs(e *env) *cobra.Command {
	var owner string
	var asJSON, quiet bool
	cmd := &cobra.Command{
		Use:   "ls [ID [PATH]]",
		Short: "List the codebases, or the files of one",
		Example: `  agentfense codebase ls
  agentfense codebase ls cb_0123456789abcdef src`,
		Args: cobra.MaximumNArgs(2),
	}
	e.asking(cmd, func(ctx context.Context, s backend.Server, args []string) error {
		if len(args) > 0 {
			return e.listCodebaseFiles(ctx, s, args, asJSON)
		}
		return e.listCodebases(ctx, s, owner, asJSON, quiet)
	})
	cmd.Flags().StringVar(&owner, "owner", "", "only those of an owner")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the ids only")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (e *env) listCodebases(ctx context.Context, s backend.Server, owner string, asJSON, quiet bool) error {
	all, err := s.Codebases(ctx, owner)
	if err != nil {
		return err
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int                `json:"schema_version"`
			Codebases     []backend.Codebase `json:"codebases"`
		}{schemaVersion, append([]backend.Codebase{}, all...)})
	}
	var rows [][]string
	for _, c := range all {
		row := []string{c.ID, vpath.Escape(c.Name), vpath.Escape(c.OwnerID), fmt.Sprint(c.FileCount), formatBytes(c.SizeBytes), present.LocalTime(c.UpdatedAt)}
		if c.Linked {
			row[3], row[4] = "linked", "-"
		}
		if quiet {
			row = row[:1]
		}
		rows = append(rows, row)
	}
	if quiet {
		return printRows(e.stdout, rows)
	}
	return printTable(e.stdout, []string{"ID", "NAME", "OWNER", "FILES", "SIZE", "CHANGED"}, rows)
}

// codebaseEntry is one file of a codebase.
type codebaseEntry struct {
	Path      string `json:"path"` // escaped
	Type      string `json:"type"`
	Mode      string `json:"mode"` // octal permission bits
	SizeBytes int64  `json:"size_bytes"`
	Target    string `json:"symlink_target,omitempty"`
}

func (e *env) listCodebaseFiles(ctx context.Context, s backend.Server, args []string, asJSON bool) error {
	dir := vpath.Root
	if len(args) > 1 {
		var err error
		if dir, err = workspacePath(args[1]); err != nil {
			return err
		}
	}
	files, err := s.Files(ctx, args[0], dir, false)
	if err != nil {
		return err
	}
	entries := []codebaseEntry{}
	var rows [][]string
	for _, f := range files {
		entry := codebaseEntry{
			Path: f.Path.String(), Type: "file", Mode: fmt.Sprintf("%04o", f.Mode.Perm()), SizeBytes: f.SizeBytes, Target: vpath.Escape(f.Target),
		}
		name := entry.Path
		switch {
		case f.Mode.IsDir():
			entry.Type = "directory"
		case f.Target != "":
			entry.Type = "symlink"
			name += " -> " + entry.Target
		}
		entries = append(entries, entry)
		rows = append(rows, []string{entry.Type, entry.Mode, fmt.Sprint(f.SizeBytes), name})
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int             `json:"schema_version"`
			Entries       []codebaseEntry `json:"entries"`
		}{schemaVersion, entries})
	}
	return printRows(e.stdout, rows)
}

func newCodebaseRm(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm ID…",
		Short:   "Remove codebases with their files; of a linked one only the link",
		Example: `  agentfense codebase rm cb_0123456789abcdef`,
		Args:    cobra.MinimumNArgs(1),
	}
	e.asking(cmd, func(ctx context.Context, s backend.Server, args []string) error {
		for _, id := range args {
			if err := s.DeleteCodebase(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}
