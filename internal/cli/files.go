package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
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

// look is a sandbox's view read from outside: its layers under its policy.
type look struct {
	stack  *layer.Stack
	policy *policy.Policy
	source *os.File
}

// lookInto calls do with the view of the sandbox called name.
func (e *env) lookInto(ctx context.Context, name string, do func(*look) error) error {
	home, sb, err := e.open(name)
	if err != nil {
		return err
	}
	if done, err := e.asOwner(ctx, sb, e.args); done || err != nil {
		return err
	}
	l, err := openLook(home, sb)
	if err != nil {
		return err
	}
	defer l.close()
	return do(l)
}

func openLook(home *sandbox.Home, sb *sandbox.Sandbox) (*look, error) {
	reserved, err := home.Reserved(sb.Record().Source)
	if err != nil {
		return nil, err
	}
	l := &look{}
	if l.policy, err = policy.Compile(sb.Record().Rules, policy.Options{Reserved: reserved}); err != nil {
		return nil, err
	}
	if l.source, err = sb.Record().Source.Open(); err != nil {
		return nil, err
	}
	l.stack, err = sb.OpenLayers(l.source, true)
	if err != nil {
		l.source.Close()
		return nil, err
	}
	return l, nil
}

func (l *look) close() {
	l.stack.Close()
	l.source.Close()
}

// fileEntry is one entry of the view.
type fileEntry struct {
	Path       string            `json:"path"` // escaped
	Type       string            `json:"type"` // file, directory, symlink, fifo, socket, device
	Permission policy.Permission `json:"permission"`
	Mode       string            `json:"mode"` // octal permission bits of the file
	SizeBytes  int64             `json:"size_bytes"`
	ModifiedAt time.Time         `json:"modified_at"`
	Origin     string            `json:"origin"` // source, frozen or delta
	Target     string            `json:"target,omitempty"`
}

// at describes path as a process inside would see it. Errors: NotFound also
// for what the policy hides.
func (l *look) at(path vpath.Path) (fileEntry, layer.Info, error) {
	info, err := l.stack.Lookup(path)
	if err != nil {
		return fileEntry{}, info, err
	}
	d := l.policy.Decide(path)
	permission := d.Permission
	if info.IsDir() {
		permission = d.ForDir()
	}
	if permission == policy.None && !path.IsRoot() {
		return fileEntry{}, info, fault.New(fault.NotFound, "%s: no such file or directory", path)
	}
	entry := fileEntry{
		Path: path.String(), Type: typeName(info.Mode), Permission: permission,
		Mode: fmt.Sprintf("%04o", info.Mode&0o7777), SizeBytes: info.Size,
		ModifiedAt: time.Unix(info.Mtime.Unix()).UTC(), Origin: originNames[info.Origin],
	}
	if info.Mode&unix.S_IFMT == unix.S_IFLNK && permission >= policy.Read {
		target, err := l.stack.Readlink(path)
		if err != nil {
			return fileEntry{}, info, err
		}
		entry.Target = vpath.Escape(target)
	}
	return entry, info, nil
}

var originNames = map[layer.Origin]string{layer.Source: "source", layer.Frozen: "frozen", layer.Delta: "delta"}

func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

func newFilesLs(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "ls NAME [PATH]",
		Short:             "List a directory of the view",
		Example:           `  agentfense files ls fix src`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFilesLs(cmd.Context(), e, args[0], strings.Join(args[1:], ""), asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func runFilesLs(ctx context.Context, e *env, name, where string, asJSON bool) error {
	dir, err := workspacePath(where)
	if err != nil {
		return err
	}
	return e.lookInto(ctx, name, func(l *look) error {
		entries, err := l.list(dir)
		if err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(struct {
				SchemaVersion int         `json:"schema_version"`
				Entries       []fileEntry `json:"entries"`
			}{schemaVersion, entries})
		}
		return printRows(e.stdout, fileRows(entries))
	})
}

// list returns the visible entries of dir, or dir itself if it is no
// directory, by name.
func (l *look) list(dir vpath.Path) ([]fileEntry, error) {
	self, info, err := l.at(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []fileEntry{self}, nil
	}
	children, err := l.stack.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	entries := []fileEntry{}
	for _, c := range children {
		entry, _, err := l.at(dir.Child(c.Name))
		if fault.Is(err, fault.NotFound) {
			continue // hidden, or removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b fileEntry) int { return strings.Compare(a.Path, b.Path) })
	return entries, nil
}

func fileRows(entries []fileEntry) [][]string {
	rows := make([][]string, len(entries))
	for i, f := range entries {
		name := f.Path
		if f.Target != "" {
			name += " -> " + f.Target
		}
		rows[i] = []string{
			f.Permission.String(), f.Origin, f.Type, f.Mode, fmt.Sprint(f.SizeBytes),
			f.ModifiedAt.Local().Format(time.DateTime), name,
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
		ValidArgsFunction: e.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := workspacePath(args[1])
			if err != nil {
				return err
			}
			return e.lookInto(cmd.Context(), args[0], func(l *look) error {
				entry, _, err := l.at(path)
				if err != nil {
					return err
				}
				if asJSON {
					return e.printJSON(struct {
						SchemaVersion int `json:"schema_version"`
						fileEntry
					}{schemaVersion, entry})
				}
				return printRows(e.stdout, fileRows([]fileEntry{entry}))
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newFilesCat(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "cat NAME PATH…",
		Short:             "Print files of the view",
		Example:           `  agentfense files cat fix src/main.go`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: e.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.lookInto(cmd.Context(), args[0], func(l *look) error {
				for _, arg := range args[1:] {
					if err := l.cat(e.stdout, arg); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (l *look) cat(w io.Writer, arg string) error {
	path, err := workspacePath(arg)
	if err != nil {
		return err
	}
	entry, _, err := l.at(path)
	switch {
	case err != nil:
		return err
	case entry.Permission < policy.Read:
		return fault.New(fault.Denied, "%s: the policy shows its name only (%s)", path, entry.Permission)
	}
	f, info, err := l.stack.Open(path, false)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, io.NewSectionReader(f, 0, info.Size))
	return err
}
