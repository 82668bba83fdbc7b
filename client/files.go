package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/stream"
	"github.com/agentfense/agentfense/internal/transfer/viewfs"
)

// SandboxFiles gives access to a sandbox's view: the codebase with the sandbox's changes, under its
// policy. The sandbox need not be running. ErrNotFound is also the error for paths that the policy
// hides.
type SandboxFiles struct {
	c         *Client
	id, mount string
}

// path encodes a path for the API. In a mount, "/workspace" is a name like others.
func (f SandboxFiles) path(name string) string {
	if f.mount == "" {
		return inside(name)
	}
	return vpath.EncodeText(name)
}

// ViewEntry is a file or directory of a sandbox's view.
type ViewEntry struct {
	Path          string // relative to the workspace; "" for the workspace itself
	Permission    Permission
	Mode          fs.FileMode
	SizeBytes     int64
	ModifiedAt    time.Time
	SymlinkTarget string // of a symbolic link that can be read
	Changed       bool   // the content is the sandbox's, not the codebase's
}

// Name is the path's last element, "." for the workspace.
func (e ViewEntry) Name() string { return path.Base(e.Path) }

// IsDir reports whether it is a directory.
func (e ViewEntry) IsDir() bool { return e.Mode.IsDir() }

func entryFrom(e *sandboxv1.ViewEntry) ViewEntry {
	return ViewEntry{
		Path: vpath.DecodeText(e.Path), Permission: permissionFrom(e.Permission), Mode: stream.FileMode(e.Mode), SizeBytes: e.Size,
		ModifiedAt: timeFrom(e.ModifiedAt), SymlinkTarget: vpath.DecodeText(e.SymlinkTarget), Changed: e.Origin == sandboxv1.ViewOrigin_VIEW_ORIGIN_DELTA,
	}
}

func (f SandboxFiles) view(ctx context.Context, operation, name string, itself bool) ([]ViewEntry, error) {
	entries := []ViewEntry{}
	for e, err := range pages(func(token string) ([]*sandboxv1.ViewEntry, string, error) {
		page, err := f.c.sandboxes.ListView(ctx, &sandboxv1.ListViewRequest{SandboxId: f.id, Mount: f.mount, Path: f.path(name), Itself: itself, PageToken: token})
		return page.GetEntries(), page.GetNextPageToken(), f.c.fail(ctx, operation+" "+name, err)
	}, entryFrom) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// List lists a directory, sorted by path; for a file it returns the file. Errors: ErrNotFound.
func (f SandboxFiles) List(ctx context.Context, name string) ([]ViewEntry, error) {
	return f.view(ctx, "list", name, false)
}

// Walk yields all entries below a directory, each directory before its entries. It ends with the
// first error.
func (f SandboxFiles) Walk(ctx context.Context, name string) iter.Seq2[ViewEntry, error] {
	return func(yield func(ViewEntry, error) bool) { f.walk(ctx, name, yield) }
}

func (f SandboxFiles) walk(ctx context.Context, name string, yield func(ViewEntry, error) bool) bool {
	entries, err := f.List(ctx, name)
	if err != nil {
		yield(ViewEntry{}, err)
		return false
	}
	for _, e := range entries {
		if !yield(e, nil) || e.IsDir() && !f.walk(ctx, e.Path, yield) {
			return false
		}
	}
	return true
}

// Stat describes a file or directory. It does not follow a symbolic link. Errors: ErrNotFound.
func (f SandboxFiles) Stat(ctx context.Context, name string) (ViewEntry, error) {
	entries, err := f.view(ctx, "stat", name, true)
	if err != nil {
		return ViewEntry{}, err
	}
	if len(entries) != 1 {
		return ViewEntry{}, failure("stat "+name, "the server sent no description", ErrInternal)
	}
	return entries[0], nil
}

// MaxRead is the largest file, in bytes, that SandboxFiles.Read and ReadFile of its FS return: a
// command can create a sparse file of any size.
const MaxRead = 64 << 20

// Read returns a file's content. Errors: ErrNotFound; ErrDenied for a file with the permission
// view; ErrInvalid if it is not a regular file; ErrExhausted above MaxRead: use Copy.
func (f SandboxFiles) Read(ctx context.Context, name string) ([]byte, error) {
	var content whole
	err := f.Copy(ctx, name, &content)
	if content.over {
		e := failure("read "+name, fmt.Sprintf("larger than %d bytes: read it in pieces, with Copy or from an open file of FS", MaxRead), ErrExhausted)
		e.Limit, e.Resource = MaxRead, "bytes"
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return content.text.Bytes(), nil
}

// whole keeps everything that is written, up to MaxRead.
type whole struct {
	text bytes.Buffer
	over bool // more than MaxRead was written
}

// Write adds b. Errors: ErrExhausted.
func (w *whole) Write(b []byte) (int, error) {
	if w.over = w.text.Len()+len(b) > MaxRead; w.over {
		return 0, ErrExhausted
	}
	return w.text.Write(b)
}

// Copy is Read that writes the content to w, without a limit of size.
func (f SandboxFiles) Copy(ctx context.Context, name string, w io.Writer) error {
	return f.c.contentError(ctx, "read "+name, stream.Content(ctx, w, f.c.sandboxes.ReadView, &sandboxv1.ReadViewRequest{SandboxId: f.id, Mount: f.mount, Path: f.path(name)}))
}

// store writes its input to a file, whose name is $1 in the form of printfForm, and creates missing
// directories. The full stop preserves line feeds at the end of the name.
const store = `to=$(printf '%b.' "$1"); to=${to%.}; case $to in */*) mkdir -p -- "${to%/*}" || exit;; esac; cat >"$to"`

// printfForm encodes a name for printf's %b, because arguments of commands must be UTF-8.
func printfForm(name string) string {
	var form strings.Builder
	for _, b := range []byte(name) {
		if b >= utf8.RuneSelf || b == '\\' {
			fmt.Fprintf(&form, `\0%03o`, b)
		} else {
			form.WriteByte(b)
		}
	}
	return form.String()
}

// Write writes a file as a command inside would, and creates missing directories. Errors:
// ErrNotRunning; ErrDenied if the policy refuses it; ErrNotFound, ErrExists, ErrExhausted;
// ErrInvalid in a mount, which commands write.
func (f SandboxFiles) Write(ctx context.Context, name string, content io.Reader) error {
	if f.mount != "" {
		return failure("write "+name, "only files of the workspace can be written: run a command to write in the mount "+f.mount, ErrInvalid)
	}
	to := "./" + strings.TrimLeft(inWorkspace(name), "/")
	var said capped
	box := &Sandbox{ID: f.id, c: f.c}
	o := &settings{stdin: content, stdout: io.Discard, stderr: &said, timeout: workPatience}
	x, err := box.attach(ctx, []string{"/bin/sh", "-c", store, "sh", printfForm(to)}, o)
	if err != nil {
		return err
	}
	result, err := x.Wait()
	if err != nil {
		return err
	}
	if result.Success() {
		return nil
	}
	text := strings.TrimSpace(said.text.String())
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return failure("write "+name, text, ofWords(text))
}

// ofWords returns the kind of a shell's error message about a file.
func ofWords(text string) error {
	for kind, words := range map[error][]string{
		ErrDenied:    {"Permission denied", "Read-only file system", "Operation not permitted"},
		ErrNotFound:  {"No such file or directory", "Not a directory", "Directory nonexistent"},
		ErrExists:    {"File exists", "Is a directory"},
		ErrExhausted: {"No space left on device", "Disk quota exceeded"},
	} {
		for _, w := range words {
			if strings.EqualFold(text, w) {
				return kind
			}
		}
	}
	return ErrInternal
}

// FS returns the view as an fs.FS, which works until ctx ends. Open follows symbolic links within
// the workspace. ReadFile has the limit of Read. A path that the policy hides is fs.ErrNotExist;
// reading a file with the permission view is fs.ErrPermission.
func (f SandboxFiles) FS(ctx context.Context) interface {
	fs.ReadDirFS
	fs.ReadFileFS
	fs.StatFS
	fs.ReadLinkFS
} {
	return viewfs.New(fileView{ctx, f})
}

// fileView is the view as package viewfs asks for it.
type fileView struct {
	ctx   context.Context
	files SandboxFiles
}

func (v fileView) Stat(name string) (viewfs.Entry, error) {
	e, err := v.files.Stat(v.ctx, name)
	return e.ofFS(), errOfFS(err)
}

func (v fileView) List(name string) ([]viewfs.Entry, error) {
	entries, err := v.files.List(v.ctx, name)
	list := make([]viewfs.Entry, len(entries))
	for i, e := range entries {
		list[i] = e.ofFS()
	}
	return list, errOfFS(err)
}

func (v fileView) Read(name string) ([]byte, error) {
	content, err := v.files.Read(v.ctx, name)
	return content, errOfFS(err)
}

func (v fileView) Open(name string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(v.ctx)
	from, err := v.files.c.sandboxes.ReadView(ctx, &sandboxv1.ReadViewRequest{SandboxId: v.files.id, Mount: v.files.mount, Path: v.files.path(name)})
	if err != nil {
		cancel()
		return nil, errOfFS(v.files.c.fail(v.ctx, "read", err))
	}
	return &viewReader{v: v, from: from, cancel: cancel}, nil
}

func (e ViewEntry) ofFS() viewfs.Entry {
	return viewfs.Entry{Path: e.Path, Mode: e.Mode, SizeBytes: e.SizeBytes, ModifiedAt: e.ModifiedAt, SymlinkTarget: e.SymlinkTarget, Sys: e}
}

// viewReader is the content of a file.
type viewReader struct {
	v      fileView
	from   grpc.ServerStreamingClient[sandboxv1.ReadViewResponse]
	cancel context.CancelFunc
	rest   []byte
}

// Read reads on.
func (r *viewReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		piece, err := r.from.Recv()
		if err != nil {
			return 0, errOfFS(r.v.files.c.fail(r.v.ctx, "read", err)) // io.EOF stays what it is
		}
		r.rest = piece.Data
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends the reading.
func (r *viewReader) Close() error {
	r.cancel()
	return nil
}

// errOfFS returns the error of package fs for a kind.
func errOfFS(err error) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return fs.ErrNotExist
	case errors.Is(err, ErrDenied):
		return fs.ErrPermission
	}
	return err
}
