package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/transfer/scan"
)

func newCodebasePull(e *env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "pull ID DIR",
		Short: "Download a codebase into a directory",
		Long: `Download the files of a codebase into a directory, which is made if it is absent.
One that holds something is refused, unless --force is given: then files are
added and replaced, each whole, and none is removed. Nothing outside of the directory is
touched, whatever links are in it.`,
		Example: `  agentfense codebase pull cb_0123456789abcdef ./result
  agentfense codebase pull cb_0123456789abcdef . --force`,
		Args: cobra.ExactArgs(2),
	}
	e.asking(cmd, func(ctx context.Context, s backend.Server, args []string) error {
		return e.pull(ctx, s, args[0], args[1], force)
	})
	cmd.Flags().BoolVar(&force, "force", false, "also into a directory that holds something: replace its files")
	return cmd
}

func (e *env) pull(ctx context.Context, s backend.Server, id, dir string, force bool) error {
	files, err := s.Files(ctx, id, vpath.Root, true)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return errdefs.New(errdefs.Denied, "%w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return errdefs.New(errdefs.Denied, "%w", err)
	}
	defer root.Close()
	if err := checkEmpty(root, dir); err != nil && !force {
		return err
	}
	slices.SortFunc(files, func(a, b scan.File) int { return strings.Compare(string(a.Path), string(b.Path)) })
	p := e.progress("downloading")
	defer p.stop()
	into := download{server: s, id: id, root: root}
	for i, f := range files {
		if err := into.take(ctx, f); err != nil {
			return err
		}
		p.count(i+1, len(files))
	}
	p.stop()
	// A directory's own mode may forbid to write into it: it comes last.
	for _, f := range slices.Backward(files) {
		if f.Mode.IsDir() {
			if err := root.Chmod(f.Path.Rel(), f.Mode.Perm()); err != nil {
				return errdefs.New(errdefs.Denied, "%w", err)
			}
		}
	}
	e.say("%s in %s", countFiles(files), record.HostPath(dir))
	return nil
}

// countFiles says how many files there are, and directories and links apart.
func countFiles(files []scan.File) string {
	var regular, dirs, links int
	for _, f := range files {
		switch {
		case f.Mode.IsDir():
			dirs++
		case f.Mode.Type() == fs.ModeSymlink:
			links++
		default:
			regular++
		}
	}
	text := plural(regular, "file")
	if links > 0 {
		text += ", " + plural(links, "symbolic link")
	}
	switch dirs {
	case 0:
		return text
	case 1:
		return text + ", 1 directory"
	}
	return fmt.Sprintf("%s, %d directories", text, dirs)
}

func checkEmpty(root *os.Root, dir string) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err == nil && len(entries) > 0 {
		err = errdefs.New(errdefs.Precondition, "%s: holds something already; --force adds and replaces files there", record.HostPath(dir))
	}
	return err
}

// download brings the files of a codebase into a directory.
type download struct {
	server backend.Server
	id     string
	root   *os.Root
}

func (d download) take(ctx context.Context, f scan.File) error {
	name := f.Path.Rel()
	switch {
	case f.Mode.IsDir():
		err := d.root.Mkdir(name, 0o700)
		if errors.Is(err, fs.ErrExist) {
			var info fs.FileInfo
			if info, err = d.root.Lstat(name); err == nil && !info.IsDir() {
				err = errdefs.New(errdefs.Exists, "%s: exists and is not a directory", f.Path)
			}
		}
		return err
	case f.Mode.Type() == fs.ModeSymlink:
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return d.root.Symlink(f.Target, name)
	}
	return d.file(ctx, f, name)
}

// file writes a file beside its place and then puts it there: nobody sees half
// of it.
func (d download) file(ctx context.Context, f scan.File, name string) error {
	part := path.Join(path.Dir(name), ".agentfense-part")
	if err := d.root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = d.server.Download(ctx, to, d.id, f.Path)
	err = errors.Join(err, to.Chmod(f.Mode.Perm()), to.Close())
	if err == nil {
		err = d.root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, d.root.Remove(part))
	}
	return nil
}
