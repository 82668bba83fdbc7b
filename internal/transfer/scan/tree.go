// Package scan lists and opens the files of a directory of this host for an upload. It never reads
// outside of the directory, whatever links are in it.
package scan

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/statedir"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// File is an entry of a codebase, or of an upload.
type File struct {
	Path      vpath.Path
	Mode      fs.FileMode // type and permission bits
	SizeBytes int64
	Target    string // of a symbolic link
}

// Tree is a directory without the user's state directory and without what package ignore leaves
// out, sorted by path. It is not safe for concurrent use.
type Tree struct {
	Path    string       // of the directory, absolute and without links
	Skipped []vpath.Path // sockets, FIFOs and devices, which no codebase can hold

	root  *os.Root
	state fs.FileInfo // of the state directory, nil if there is none
	files []File
	infos []fs.FileInfo // of files
	at    int
}

// Open lists a directory. patterns leave out more than its own ignore files do. Errors: NotFound;
// Invalid if it is not a directory, and for malformed patterns; Denied.
func Open(dir string, patterns ...string) (*Tree, error) {
	if dir == "" {
		return nil, errdefs.New(errdefs.Invalid, "no directory given")
	}
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.NotFound, "%w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "%w", err)
	}
	t := &Tree{Path: path, root: root, state: stateDir()}
	matcher, err := t.matcher(patterns)
	if err == nil {
		err = t.look(matcher)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return t, nil
}

// stateDir describes the user's state directory, which has tokens and keys and is never uploaded;
// nil if it does not exist.
func stateDir() fs.FileInfo {
	path, err := statedir.Path(os.Getenv)
	if err != nil {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// isState reports whether entry, a directory, is the state directory.
func (t *Tree) isState(entry fs.DirEntry) bool {
	if t.state == nil || !entry.IsDir() {
		return false
	}
	info, err := entry.Info()
	return err == nil && os.SameFile(info, t.state)
}

// matcher returns the matcher of the default patterns, those of the ignore files, and more.
func (t *Tree) matcher(more []string) (*ignore.Matcher, error) {
	texts := []string{ignore.UploadDefaults}
	for _, name := range ignore.Names {
		text, err := t.patterns(name)
		switch {
		case err == nil:
			texts = append(texts, text)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, errdefs.New(errdefs.Invalid, "%s: %w", vpath.Escape(filepath.Join(t.Path, name)), err)
		}
	}
	return ignore.New(append(texts, more...)...)
}

// patterns reads an ignore file, up to one byte more than package ignore accepts.
func (t *Tree) patterns(name string) (string, error) {
	f, err := t.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, ignore.MaxBytes+1))
	return string(text), err
}

// open opens a regular file for reading, without following a link: os.Root follows links within the
// directory, which may lead to a file that is left out.
func (t *Tree) open(name string) (*os.File, error) {
	is, err := t.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !is.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNotRegular}
	}
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without O_NONBLOCK, a FIFO would block
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(is, opened) {
		err = &fs.PathError{Op: "open", Path: name, Err: errNotRegular}
	}
	for dir := path.Dir(name); err == nil && dir != "."; dir = path.Dir(dir) {
		var above fs.FileInfo
		if above, err = t.root.Lstat(dir); err == nil && !above.IsDir() {
			err = &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

var errNotRegular = errors.New("not a regular file")

// Close closes the directory.
func (t *Tree) Close() error { return t.root.Close() }

// Len returns the number of entries.
func (t *Tree) Len() int { return len(t.files) }

// look lists the entries to upload.
func (t *Tree) look(matcher *ignore.Matcher) error {
	return fs.WalkDir(t.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return errdefs.New(errdefs.Denied, "%w", err)
		}
		if t.isState(entry) {
			if name == "." {
				return errdefs.New(errdefs.Invalid, "directory %s: this is the state directory, which contains secrets", vpath.Escape(t.Path))
			}
			return fs.SkipDir
		}
		if name == "." {
			return nil
		}
		path, err := vpath.Parse(name)
		if err != nil {
			return err
		}
		if matcher.ExcludesEntry(path, entry.IsDir()) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return errdefs.New(errdefs.Precondition, "%s: removed while the directory was read", path)
		}
		return t.add(path, info)
	})
}

func (t *Tree) add(path vpath.Path, info fs.FileInfo) error {
	f := File{Path: path, Mode: info.Mode() & (fs.ModeType | fs.ModePerm)}
	switch info.Mode().Type() {
	case 0:
		f.SizeBytes = info.Size()
	case fs.ModeDir:
	case fs.ModeSymlink:
		target, err := t.root.Readlink(path.Rel())
		if err != nil {
			return errdefs.New(errdefs.Precondition, "%s: %w", path, err)
		}
		f.Target = target
	default:
		t.Skipped = append(t.Skipped, path)
		return nil
	}
	t.files, t.infos = append(t.files, f), append(t.infos, info)
	return nil
}

// Next returns the next entry, with the open file for a regular file, and io.EOF after the last.
// Errors: Denied, also for a file whose type changed.
func (t *Tree) Next() (File, *os.File, error) {
	if t.at == len(t.files) {
		return File{}, nil, io.EOF
	}
	f := t.files[t.at]
	t.at++
	if !f.Mode.IsRegular() {
		return f, nil, nil
	}
	content, err := t.open(f.Path.Rel())
	if err != nil {
		return f, nil, errdefs.New(errdefs.Denied, "%w", err)
	}
	info, err := content.Stat()
	if err != nil {
		content.Close()
		return f, nil, err
	}
	t.infos[t.at-1] = info
	f.SizeBytes, f.Mode = info.Size(), info.Mode()&(fs.ModeType|fs.ModePerm)
	return f, content, nil
}

// Info describes the last entry of Next, a regular file as it was opened.
func (t *Tree) Info() fs.FileInfo { return t.infos[t.at-1] }
