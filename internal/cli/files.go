package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func newFiles(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "files",
		Short: "Look at a sandbox's view from outside, running or not",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFilesLs(e), newFilesCat(e), newFilesStat(e))
	return cmd
}

// lookInto makes cmd one that does something with the view of a sandbox.
func (e *env) lookInto(cmd *cobra.Command, do func(ctx context.Context, v viewOf, args []string) error) {
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			mount, paths, err := splitMounts(ctx, b, args[0], args[1:])
			if err != nil {
				return err
			}
			v, err := b.View(ctx, args[0], mount, e.args)
			if err != nil {
				return err
			}
			defer v.Close()
			e.sayLost(v.Lost())
			err = do(ctx, viewOf{v, mount}, paths)
			return e.explainPaths(ctx, b, args[0], mount, args[1:], err)
		})
	}
}

// viewOf is the workspace's view, or that of a mount.
type viewOf struct {
	backend.View
	mount string
}

// splitMounts takes NAME: off paths of the form NAME:/path, if NAME is a mount of the sandbox.
// Errors: Invalid for paths of several mounts.
func splitMounts(ctx context.Context, b backend.Backend, name string, given []string) (mount string, paths []string, err error) {
	if !slices.ContainsFunc(given, func(p string) bool { return strings.Contains(p, ":/") }) {
		return "", given, nil
	}
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return "", nil, err
	}
	for i, path := range given {
		in := ""
		if prefix, rest, found := strings.Cut(path, ":/"); found && slices.ContainsFunc(sb.Record.Mounts, func(m record.Mount) bool { return m.Name == prefix }) {
			in, path = prefix, "/"+rest
		}
		if i > 0 && in != mount {
			return "", nil, usageError{errdefs.New(errdefs.Invalid, "the paths are in different mounts: name those of one mount at a time")}
		}
		mount, paths = in, append(paths, path)
	}
	return mount, paths, nil
}

// fileEntry is one entry of the view.
type fileEntry struct {
	Mount      string            `json:"mount,omitempty"`
	Path       string            `json:"path"` // escaped
	Type       string            `json:"type"` // file, directory, symlink, fifo, socket, device
	Permission policy.Permission `json:"permission"`
	Mode       string            `json:"mode"` // octal permission bits of the file
	SizeBytes  int64             `json:"size_bytes"`
	ModifiedAt time.Time         `json:"modified_at"`
	Origin     readview.Origin   `json:"origin"`
	Target     string            `json:"symlink_target,omitempty"`
}

func fileEntryOf(v readview.Entry, mount string) fileEntry {
	return fileEntry{
		Mount: mount, Path: v.Path.String(), Type: present.TypeName(v.Mode), Permission: v.Permission,
		Mode: fmt.Sprintf("%04o", v.Mode&0o7777), SizeBytes: v.SizeBytes,
		ModifiedAt: v.ModifiedAt, Origin: v.Origin, Target: vpath.Escape(v.Target),
	}
}

func newFilesLs(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "ls NAME [PATH]",
		Short:             "List a directory of the view",
		Example:           `  agentfense files ls fix src`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.completeViewed(1),
	}
	e.lookInto(cmd, func(ctx context.Context, v viewOf, args []string) error {
		dir, err := workspacePath(strings.Join(args, ""))
		if err != nil {
			return err
		}
		return e.listView(ctx, v, dir, asJSON)
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (e *env) listView(ctx context.Context, v viewOf, dir vpath.Path, asJSON bool) error {
	list, err := v.List(ctx, dir)
	if err != nil {
		return err
	}
	entries := make([]fileEntry, len(list))
	for i, entry := range list {
		entries[i] = fileEntryOf(entry, v.mount)
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int         `json:"schema_version"`
			Entries       []fileEntry `json:"entries"`
		}{schemaVersion, entries})
	}
	return printRows(e.stdout, fileRows(entries))
}

func fileRows(entries []fileEntry) [][]string {
	rows := make([][]string, len(entries))
	for i, f := range entries {
		name := present.InMount(f.Mount, f.Path)
		if f.Target != "" {
			name += " -> " + f.Target
		}
		rows[i] = []string{
			f.Permission.String(), string(f.Origin), f.Type, f.Mode, fmt.Sprint(f.SizeBytes),
			present.LocalTime(f.ModifiedAt), name,
		}
	}
	return rows
}

func newFilesStat(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "stat NAME PATH",
		Short:             "Describe one path of the view",
		Example:           `  agentfense files stat fix src/main.go --json`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: e.completeViewed(1),
	}
	e.lookInto(cmd, func(ctx context.Context, v viewOf, args []string) error {
		path, err := workspacePath(args[0])
		if err != nil {
			return err
		}
		found, err := v.Stat(ctx, path)
		if err != nil {
			return err
		}
		entry := fileEntryOf(found, v.mount)
		if asJSON {
			return e.printJSON(struct {
				SchemaVersion int `json:"schema_version"`
				fileEntry
			}{schemaVersion, entry})
		}
		return printRows(e.stdout, fileRows([]fileEntry{entry}))
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newFilesCat(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "cat NAME PATH…",
		Short:             "Print files of the view",
		Example:           `  agentfense files cat fix src/main.go`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: e.completeViewed(0),
	}
	e.lookInto(cmd, func(ctx context.Context, v viewOf, args []string) error {
		paths, err := workspacePaths(args)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := v.Copy(ctx, e.stdout, path); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}
