package portable

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// whiteoutPrefix and its meaning are of the OCI image specification (layer.md).
const whiteoutPrefix = ".wh."

// writeBuffer is what an archive's writer gathers before it writes.
const writeBuffer = 256 << 10

// Tar writes what the sandbox created and changed to the new file name as a tar archive (PAX).
// An archive cannot hold deletions: the result has their number. Errors: Exists, Exhausted; those
// of changes.OpenToRead.
func Tar(ctx context.Context, s *record.Sandbox, name string, how Options) (Result, error) {
	return export(s, name, func(d *delta, o *safefs.NewFile) error {
		if err := d.fits(filepath.Dir(name), 1, how); err != nil {
			return err
		}
		f, err := os.OpenFile(o.Temporary, os.O_WRONLY, 0)
		if err != nil {
			return failed(name, err)
		}
		defer f.Close()
		return d.tar(ctx, how.bound(f), false)
	})
}

// export has do write an export to a new file, which gets its name if do succeeds.
func export(s *record.Sandbox, name string, do func(*delta, *safefs.NewFile) error) (result Result, err error) {
	o, err := safefs.CreateNew(name)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, o.Discard()) }()
	d, err := openDelta(s)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := do(d, o); err != nil {
		return Result{}, err
	}
	return d.result(), o.Commit()
}

// tar writes the entries, as an OCI layer also the deletions.
func (d *delta) tar(ctx context.Context, to io.Writer, asLayer bool) error {
	buffered := bufio.NewWriterSize(to, writeBuffer)
	w := tar.NewWriter(buffered)
	kept := d.entries[:0]
	for i := range d.entries {
		e := &d.entries[i]
		if err := ctx.Err(); err != nil {
			return errdefs.New(errdefs.Canceled, "export: %w", err)
		}
		if why := unfitForTar(e); why != "" {
			d.skip(e.path, why)
			continue
		}
		if err := d.tarEntry(ctx, w, e, asLayer); err != nil {
			return err
		}
		kept = append(kept, *e)
	}
	d.entries = kept
	if err := w.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// unfitForTar returns the reason why a tar archive has no form for e, or "".
func unfitForTar(e *entry) string {
	if !e.deleted && e.info.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return "a tar archive cannot hold a socket"
	}
	return ""
}

func (d *delta) tarEntry(ctx context.Context, w *tar.Writer, e *entry, asLayer bool) error {
	if asLayer && !e.path.IsRoot() {
		for name := range e.path.Elements() {
			if strings.HasPrefix(name, whiteoutPrefix) {
				return errdefs.New(errdefs.Unsupported, "export %s: in an image layer a name that starts with .wh. means a deletion: rename the file, or use another format", e.path)
			}
		}
	}
	if e.deleted {
		if !asLayer {
			return nil
		}
		return w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: e.path.Dir().Child(whiteoutPrefix + e.path.Base()).Rel(), Mode: 0o644, Format: tar.FormatPAX,
		})
	}
	h := header(e.path, &e.info, asLayer)
	switch e.info.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if e.linkOf != "" {
			h.Typeflag, h.Linkname = tar.TypeLink, e.linkOf.Rel()
			return writeHeader(w, h, e.path)
		}
		return d.tarFile(ctx, w, h, e)
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	default:
		return errdefs.New(errdefs.Unsupported, "export %s: a file of this type cannot be exported", e.path)
	}
	return writeHeader(w, h, e.path)
}

func (d *delta) tarFile(ctx context.Context, w *tar.Writer, h *tar.Header, e *entry) error {
	f, size, err := d.open(e)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, size
	if err := writeHeader(w, h, e.path); err != nil {
		return err
	}
	return copyExactly(ctx, w, f, size, e.path)
}

func header(p vpath.Path, i *layer.Info, asLayer bool) *tar.Header {
	h := &tar.Header{
		Name: p.Rel(), Mode: int64(i.Mode & 0o1777), ModTime: time.Unix(i.Mtime.Unix()), Format: tar.FormatPAX,
	}
	if p.IsRoot() {
		h.Name = "."
	}
	if !asLayer {
		h.Uid, h.Gid = os.Getuid(), os.Getgid()
	}
	return h
}

func writeHeader(w *tar.Writer, h *tar.Header, p vpath.Path) error {
	err := w.WriteHeader(h)
	if _, known := errors.AsType[*errdefs.Error](err); known {
		return err // of Options.bound
	}
	if err != nil {
		return errdefs.New(errdefs.Unsupported, "export %s: %w", p, err)
	}
	return nil
}
