package service

import (
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// chunks is the stream of an upload.
type chunks interface {
	Context() context.Context
	Recv() (*sandboxv1.UploadChunk, error)
}

// incoming is an upload that is being received, one file after the other.
type incoming struct {
	service  *Service
	from     chunks
	codebase *codebase.Codebase // nil before the first metadata
	file     *codebase.Upload   // nil between files
	make     func() error       // creates an entry without data, once none has come
	path     vpath.Path
	last     codebase.Uploaded
	stored   []vpath.Path
	bytes    int64
}

// UploadFiles stores one file.
func (c *codebaseServer) UploadFiles(from sandboxv1.CodebaseService_UploadFilesServer) error {
	in := &incoming{service: c.service, from: from}
	err := in.receive(1)
	if err != nil {
		return err
	}
	return from.SendAndClose(&sandboxv1.UploadResult{
		CodebaseId: string(in.codebase.ID()), FilePath: in.path.Text(), Size: in.last.SizeBytes, Checksum: in.last.MD5,
	})
}

// UploadTree stores many files.
func (c *codebaseServer) UploadTree(from sandboxv1.CodebaseService_UploadTreeServer) error {
	in := &incoming{service: c.service, from: from}
	if err := in.receive(0); err != nil {
		return err
	}
	return from.SendAndClose(&sandboxv1.UploadTreeResult{
		CodebaseId: string(in.codebase.ID()), FileCount: int64(len(in.stored)), Size: in.bytes,
	})
}

// receive stores at most so many files; 0: any number. It notifies the sandboxes of the codebase of
// what was stored, also after an error.
func (in *incoming) receive(most int) (err error) {
	defer func() {
		if in.file != nil {
			in.file.Abort()
		}
		if len(in.stored) > 0 {
			err = errors.Join(err, in.service.tell(in.from.Context(), in.codebase.ID(), "", in.stored))
		}
	}()
	begun := 0
	for {
		chunk, err := in.from.Recv()
		switch {
		case errors.Is(err, io.EOF) && begun == 0:
			return errdefs.New(errdefs.Invalid, "metadata: is required")
		case errors.Is(err, io.EOF):
			return in.finish()
		case err != nil:
			return err
		}
		metadata := chunk.GetMetadata()
		switch {
		case metadata != nil && begun > 0 && most == 1:
			return errdefs.New(errdefs.Invalid, "metadata: only the first message may have metadata")
		case metadata != nil:
			if err := in.finish(); err != nil {
				return err
			}
			begun++
			err = in.begin(metadata)
		case begun == 0:
			return errdefs.New(errdefs.Invalid, "data: the first message must be metadata")
		default:
			err = in.write(chunk.GetData())
		}
		if err != nil {
			return err
		}
	}
}

// begin starts the next file.
func (in *incoming) begin(m *sandboxv1.UploadChunk_Metadata) error {
	var of codebase.ID
	if in.codebase != nil {
		of = in.codebase.ID()
	}
	f, err := wireconv.DecodeUpload(m, of)
	if err == nil && in.codebase == nil {
		in.codebase, err = in.service.files(in.from.Context(), f.Codebase)
	}
	if err == nil {
		err = checkTarget(f)
	}
	if err != nil {
		return err
	}
	in.path, in.last = f.Path, codebase.Uploaded{}
	switch {
	case f.Directory:
		in.make = func() error { return in.codebase.MakeDir(f.Path, f.Mode) }
	case f.LinkTarget != "":
		in.make = func() error { return in.codebase.MakeLink(f.Path, f.LinkTarget) }
	default:
		in.file, err = in.codebase.Upload(f.Path, f.SizeBytes, f.Mode)
	}
	return err
}

// checkTarget refuses a target that no symbolic link can have. The target need not exist: the
// server does not follow it.
func checkTarget(f wireconv.Upload) error {
	switch {
	case strings.ContainsRune(f.LinkTarget, 0):
		return errdefs.New(errdefs.Invalid, "symlink_target: contains a NUL")
	case len(f.LinkTarget) >= unix.PathMax:
		return errdefs.New(errdefs.Invalid, "symlink_target: longer than %d bytes", unix.PathMax-1)
	case f.LinkTarget != "" && f.Directory:
		return errdefs.New(errdefs.Invalid, "symlink_target: not allowed for a directory")
	}
	return nil
}

func (in *incoming) write(data []byte) error {
	if in.file == nil {
		return errdefs.New(errdefs.Invalid, "data: a directory and a symbolic link have no data")
	}
	_, err := in.file.Write(data)
	return err
}

// finish stores the current file, if there is one.
func (in *incoming) finish() error {
	if made := in.make; made != nil {
		in.make = nil
		if err := made(); err != nil {
			return err
		}
		in.stored = append(in.stored, in.path)
		return nil
	}
	if in.file == nil {
		return nil
	}
	var err error
	if in.last, err = in.file.Commit(); err != nil {
		return err
	}
	in.file = nil
	in.bytes += in.last.SizeBytes
	in.stored = append(in.stored, in.path)
	return nil
}
