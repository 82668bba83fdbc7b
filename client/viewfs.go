package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// viewFS is SandboxFiles.FS.
type viewFS struct {
	ctx   context.Context
	files SandboxFiles
}

func pathError(operation, name string, err error) error {
	return &fs.PathError{Op: operation, Path: name, Err: errOfFS(err)}
}

// inView is a name of package fs as a path of the view.
func inView(operation, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", pathError(operation, name, fs.ErrInvalid)
	}
	if name == "." {
		return "", nil
	}
	return name, nil
}

// maxLinks is how many symbolic links a name may lead through (path_resolution(7)).
const maxLinks = 40

// resolve follows a link at name's end, as far as it stays in the workspace.
func (v viewFS) resolve(operation, name string) (ViewEntry, error) {
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
	return ViewEntry{}, pathError(operation, name, errors.New("too many levels of symbolic links"))
}

func (v viewFS) lstat(operation, name string) (ViewEntry, error) {
	at, err := inView(operation, name)
	if err != nil {
		return ViewEntry{}, err
	}
	e, err := v.files.Stat(v.ctx, at)
	if err != nil {
		return e, pathError(operation, name, err)
	}
	return e, nil
}

// Open opens a file or a directory.
func (v viewFS) Open(name string) (fs.File, error) {
	e, err := v.resolve("open", name)
	if err != nil {
		return nil, err
	}
	if e.IsDir() {
		return &viewDir{v: v, name: name, info: infoOf(e, name)}, nil
	}
	return &viewFile{v: v, name: name, info: infoOf(e, name)}, nil
}

// ReadFile is Files.Read.
func (v viewFS) ReadFile(name string) ([]byte, error) {
	e, err := v.resolve("open", name)
	if err != nil {
		return nil, err
	}
	content, err := v.files.Read(v.ctx, e.Path)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return content, nil
}

// Stat describes a file.
func (v viewFS) Stat(name string) (fs.FileInfo, error) {
	e, err := v.resolve("stat", name)
	if err != nil {
		return nil, err
	}
	return infoOf(e, name), nil
}

// Lstat is Stat that does not follow a link.
func (v viewFS) Lstat(name string) (fs.FileInfo, error) {
	e, err := v.lstat("lstat", name)
	if err != nil {
		return nil, err
	}
	return infoOf(e, name), nil
}

// ReadLink is where a symbolic link leads.
func (v viewFS) ReadLink(name string) (string, error) {
	e, err := v.lstat("readlink", name)
	if err == nil && e.Mode.Type() != fs.ModeSymlink {
		err = pathError("readlink", name, fs.ErrInvalid)
	}
	return e.SymlinkTarget, err
}

// ReadDir lists a directory by name.
func (v viewFS) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := v.resolve("readdir", name)
	if err == nil && !dir.IsDir() {
		err = pathError("readdir", name, errors.New("not a directory"))
	}
	if err != nil {
		return nil, err
	}
	entries, err := v.files.List(v.ctx, dir.Path)
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

// viewInfo is a ViewEntry as package fs has it.
type viewInfo struct {
	entry ViewEntry
	name  string
}

func infoOf(e ViewEntry, name string) viewInfo { return viewInfo{e, path.Base(name)} }

func (i viewInfo) Name() string       { return i.name }
func (i viewInfo) Size() int64        { return i.entry.SizeBytes }
func (i viewInfo) Mode() fs.FileMode  { return i.entry.Mode }
func (i viewInfo) ModTime() time.Time { return i.entry.ModifiedAt }
func (i viewInfo) IsDir() bool        { return i.entry.IsDir() }
func (i viewInfo) Sys() any           { return i.entry }

// viewFile is an open file, read from its beginning.
type viewFile struct {
	v      viewFS
	name   string
	info   viewInfo
	cancel context.CancelFunc // nil until it is read
	from   grpc.ServerStreamingClient[sandboxv1.ReadViewResponse]
	rest   []byte
	closed bool
}

// Stat is of when the file was opened.
func (f *viewFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read reads on.
func (f *viewFile) Read(b []byte) (int, error) {
	if f.closed {
		return 0, pathError("read", f.name, fs.ErrClosed)
	}
	if len(b) == 0 {
		return 0, nil
	}
	if f.from == nil {
		if err := f.start(); err != nil {
			return 0, err
		}
	}
	for len(f.rest) == 0 {
		piece, err := f.from.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, pathError("read", f.name, f.v.files.c.fail(f.v.ctx, "read", err))
		}
		f.rest = piece.Data
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *viewFile) start() error {
	ctx, cancel := context.WithCancel(f.v.ctx)
	request := &sandboxv1.ReadViewRequest{SandboxId: f.v.files.id, Path: inside(f.info.entry.Path)}
	from, err := f.v.files.c.sandboxes.ReadView(ctx, request)
	if err != nil {
		cancel()
		return pathError("read", f.name, f.v.files.c.fail(f.v.ctx, "read", err))
	}
	f.cancel, f.from = cancel, from
	return nil
}

// Close ends the reading.
func (f *viewFile) Close() error {
	if f.cancel != nil {
		f.cancel()
	}
	f.closed = true
	return nil
}

// viewDir is an open directory.
type viewDir struct {
	v      viewFS
	name   string
	info   viewInfo
	list   []fs.DirEntry
	listed bool
}

// Stat is of when the directory was opened.
func (d *viewDir) Stat() (fs.FileInfo, error) { return d.info, nil }

// Read fails: a directory has no content.
func (d *viewDir) Read([]byte) (int, error) {
	return 0, pathError("read", d.name, errors.New("is a directory"))
}

// Close does nothing.
func (d *viewDir) Close() error { return nil }

// ReadDir reads on, at most n entries if n is above 0.
func (d *viewDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.listed {
		var err error
		if d.list, err = d.v.ReadDir(d.name); err != nil {
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
