package wireconv

import (
	"cmp"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// NewCodebase is the codebase that CreateCodebase asks for.
type NewCodebase struct{ Name, OwnerID string }

func newCodebase(name, owner string) (NewCodebase, error) {
	return NewCodebase{name, owner}, cmp.Or(required("name", name), required("owner_id", owner))
}

// DecodeCreateCodebase reads a request; owner is used if the request names none.
func DecodeCreateCodebase(r *sandboxv1.CreateCodebaseRequest, owner string) (NewCodebase, error) {
	return newCodebase(r.GetName(), cmp.Or(r.GetOwnerId(), owner))
}

// NewLink is the codebase that LinkCodebase asks for.
type NewLink struct {
	NewCodebase
	Path        string // on the server's host
	IgnoreFiles bool
}

// DecodeLinkCodebase reads a request.
func DecodeLinkCodebase(r *sandboxv1.LinkCodebaseRequest) (NewLink, error) {
	c, err := newCodebase(r.GetName(), r.GetOwnerId())
	return NewLink{c, vpath.DecodeText(r.GetPath()), r.GetIgnoreFiles()}, cmp.Or(err, required("path", r.GetPath()))
}

// ListCodebases asks for a page of codebases.
type ListCodebases struct {
	OwnerID string // "": of all owners
	Page    Page
}

// DecodeListCodebases reads a request.
func DecodeListCodebases(r *sandboxv1.ListCodebasesRequest) (ListCodebases, error) {
	page, err := requestPage(r)
	return ListCodebases{r.GetOwnerId(), page}, err
}

// CodebaseFile is a path of a codebase, never its root.
type CodebaseFile struct {
	Codebase id.Codebase
	Path     vpath.Path
}

// DecodeCodebaseFile reads a DownloadFileRequest or a DeleteFileRequest.
func DecodeCodebaseFile(r interface {
	GetCodebaseId() string
	GetFilePath() string
},
) (f CodebaseFile, err error) {
	if f.Codebase, err = CodebaseID(r); err != nil {
		return f, err
	}
	f.Path, err = filePath(r.GetFilePath())
	return f, err
}

func filePath(text string) (vpath.Path, error) {
	p, err := requestPath("file_path", text)
	if err == nil && p.IsRoot() {
		err = required("file_path", "")
	}
	return p, err
}

// ListFiles asks for the entries of a directory of a codebase.
type ListFiles struct {
	Codebase  id.Codebase
	Path      vpath.Path
	Recursive bool
}

// DecodeListFiles reads a request.
func DecodeListFiles(r *sandboxv1.ListFilesRequest) (l ListFiles, err error) {
	l.Recursive = r.GetRecursive()
	if l.Codebase, err = CodebaseID(r); err != nil {
		return l, err
	}
	l.Path, err = requestPath("path", r.GetPath())
	return l, err
}

// Upload is one file of an upload.
type Upload struct {
	Codebase   id.Codebase
	Path       vpath.Path
	SizeBytes  int64  // of the content that follows; 0: unknown
	Mode       uint32 // permission bits; 0: the default
	LinkTarget string // of a symbolic link
	Directory  bool
}

// DecodeUpload reads the metadata of a file. It may leave out the codebase if the upload has one
// from the first file, of; "" for the first file itself.
func DecodeUpload(m *sandboxv1.UploadChunk_Metadata, of id.Codebase) (u Upload, err error) {
	u = Upload{
		Codebase: of, SizeBytes: m.GetTotalSize(), Mode: m.GetMode(),
		LinkTarget: vpath.DecodeText(m.GetSymlinkTarget()), Directory: m.GetDirectory(),
	}
	switch {
	case of == "":
		u.Codebase, err = CodebaseID(m)
	case m.GetCodebaseId() != "" && m.GetCodebaseId() != string(of):
		err = errdefs.New(errdefs.Invalid, "metadata.codebase_id: differs from that of the first file")
	}
	if err != nil {
		return u, err
	}
	u.Path, err = filePath(m.GetFilePath())
	return u, err
}
