// Package viewfs implements fs.FS on a sandbox's view, which a server describes. It follows
// symbolic links within the workspace.
package viewfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Entry is a file or directory of a view.
type Entry struct {
	Path          string // relative to the workspace; "" for the workspace itself
	Mode          fs.FileMode
	SizeBytes     int64
	ModifiedAt    time.Time
	SymlinkTarget string
	Sys           any // the result of FileInfo.Sys
}

// View is the view on a server. Paths are relative to the workspace. Errors: those of package fs,
// or others.
type View interface {
	Stat(name string) (Entry, error) // does not follow a link
	List(name string) ([]Entry, error)
	Read(name string) ([]byte, error)
	Open(name string) (io.ReadCloser, error)
}

// FS is the view as an fs.FS.
type FS struct{ view View }

// New returns the file system of a view.
func New(v View) FS { return FS{v} }

func pathError(operation, name string, err error) error {
	return &fs.PathError{Op: operation, Path: name, Err: err}
}

// inView converts a name of package fs to a path of the view.
func inView(operation, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", pathError(operation, name, fs.ErrInvalid)
	}
	if name == "." {
		return "", nil
	}
	return name, nil
}

// maxLinks is the number of symbolic links that a name may pass (path_resolution(7)).
const maxLinks = 40

// resolve follows a symbolic link at the end of name, within the workspace.
func (v FS) resolve(operation, name string) (Entry, error) {
	at := name
	for range maxLinks {
		e, err := v.lstat(operation, at)
		if err != nil || e.Mode.Type() != fs.ModeSymlink {
			return e, err
		}
		target := e.SymlinkTarget
		if rest, ok := strings.CutPrefix(target, "/workspace/"); ok {
			target = rest
		} else {
			target = path.Join(path.Dir(at), target)
		}
		if at = path.Clean(target); !fs.ValidPath(at) {
			return e, pathError(operation, name, fs.ErrNotExist)
		}
	}
	return Entry{}, pathError(operation, name, errors.New("too many levels of symbolic links"))
}

func (v FS) lstat(operation, name string) (Entry, error) {
	at, err := inView(operation, name)
	if err != nil {
		return Entry{}, err
	}
	e, err := v.view.Stat(at)
	if err != nil {
		return e, pathError(operation, name, err)
	}
	return e, nil
}

// Open opens a file or a directory.
func (v FS) Open(name string) (fs.File, error) {
	e, err := v.resolve("open", name)
	if err != nil {
		return nil, err
	}
	if e.Mode.IsDir() {
		return &viewDir{fs: v, name: name, info: infoOf(e, name)}, nil
	}
	return &viewFile{fs: v, name: name, info: infoOf(e, name)}, nil
}

// ReadFile returns the content of a file.
func (v FS) ReadFile(name string) ([]byte, error) {
	e, err := v.resolve("open", name)
	if err != nil {
		return nil, err
	}
	content, err := v.view.Read(e.Path)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return content, nil
}

// Stat describes a file.
func (v FS) Stat(name string) (fs.FileInfo, error) {
	e, err := v.resolve("stat", name)
	if err != nil {
		return nil, err
	}
	return infoOf(e, name), nil
}

// Lstat is Stat that does not follow a link.
func (v FS) Lstat(name string) (fs.FileInfo, error) {
	e, err := v.lstat("lstat", name)
	if err != nil {
		return nil, err
	}
	return infoOf(e, name), nil
}

// ReadLink returns the target of a symbolic link.
func (v FS) ReadLink(name string) (string, error) {
	e, err := v.lstat("readlink", name)
	if err == nil && e.Mode.Type() != fs.ModeSymlink {
		err = pathError("readlink", name, fs.ErrInvalid)
	}
	return e.SymlinkTarget, err
}

// ReadDir lists a directory by name.
func (v FS) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := v.resolve("readdir", name)
	if err == nil && !dir.Mode.IsDir() {
		err = pathError("readdir", name, errors.New("not a directory"))
	}
	if err != nil {
		return nil, err
	}
	entries, err := v.view.List(dir.Path)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	list := make([]fs.DirEntry, len(entries))
	for i, e := range entries {
		list[i] = fs.FileInfoToDirEntry(infoOf(e, e.Path))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// viewInfo is an Entry as fs.FileInfo and fs.DirEntry.
type viewInfo struct {
	entry Entry
	name  string
}

func infoOf(e Entry, name string) viewInfo { return viewInfo{e, path.Base(name)} }

func (i viewInfo) Name() string       { return i.name }
func (i viewInfo) Size() int64        { return i.entry.SizeBytes }
func (i viewInfo) Mode() fs.FileMode  { return i.entry.Mode }
func (i viewInfo) ModTime() time.Time { return i.entry.ModifiedAt }
func (i viewInfo) IsDir() bool        { return i.entry.Mode.IsDir() }
func (i viewInfo) Sys() any           { return i.entry.Sys }

// viewFile is an open file, read from its beginning.
type viewFile struct {
	fs     FS
	name   string
	info   viewInfo
	from   io.ReadCloser // nil until it is read
	closed bool
}

// Stat describes the file as it was opened.
func (f *viewFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read reads the next bytes.
func (f *viewFile) Read(b []byte) (int, error) {
	if f.closed {
		return 0, pathError("read", f.name, fs.ErrClosed)
	}
	if len(b) == 0 {
		return 0, nil
	}
	if f.from == nil {
		from, err := f.fs.view.Open(f.info.entry.Path)
		if err != nil {
			return 0, pathError("read", f.name, err)
		}
		f.from = from
	}
	n, err := f.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = pathError("read", f.name, err)
	}
	return n, err
}

// Close ends the call that reads.
func (f *viewFile) Close() error {
	f.closed = true
	if f.from == nil {
		return nil
	}
	return f.from.Close()
}

// viewDir is an open directory.
type viewDir struct {
	fs     FS
	name   string
	info   viewInfo
	list   []fs.DirEntry
	listed bool
}

// Stat describes the directory as it was opened.
func (d *viewDir) Stat() (fs.FileInfo, error) { return d.info, nil }

// Read fails: a directory has no content.
func (d *viewDir) Read([]byte) (int, error) {
	return 0, pathError("read", d.name, errors.New("is a directory"))
}

// Close does nothing.
func (d *viewDir) Close() error { return nil }

// ReadDir returns the next entries, at most n if n is above 0.
func (d *viewDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.listed {
		var err error
		if d.list, err = d.fs.ReadDir(d.name); err != nil {
			return nil, err
		}
		d.listed = true
	}
	if n <= 0 || n > len(d.list) {
		if n > 0 && len(d.list) == 0 {
			return nil, io.EOF
		}
		n = len(d.list)
	}
	list := d.list[:n]
	d.list = d.list[n:]
	return list, nil
}
