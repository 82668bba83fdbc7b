package wireconv

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Codebase is a codebase as the API describes it.
type Codebase struct {
	ID        string
	Name      string
	OwnerID   string
	SizeBytes int64
	FileCount int64
	Linked    bool
	CreatedAt time.Time
	UpdatedAt time.Time
}

// EncodeCodebase returns the description of a codebase.
func EncodeCodebase(c Codebase) *sandboxv1.Codebase {
	return &sandboxv1.Codebase{
		Id: c.ID, Name: c.Name, OwnerId: c.OwnerID, Size: c.SizeBytes, FileCount: int32(min(c.FileCount, math.MaxInt32)),
		CreatedAt: timestamppb.New(c.CreatedAt), UpdatedAt: timestamppb.New(c.UpdatedAt), Linked: c.Linked,
	}
}

// DecodeCodebase is the reverse of EncodeCodebase. The id is escaped.
func DecodeCodebase(m *sandboxv1.Codebase) Codebase {
	return Codebase{
		ID: vpath.Escape(m.Id), Name: m.Name, OwnerID: m.OwnerId, SizeBytes: m.Size, FileCount: int64(m.FileCount), Linked: m.Linked,
		CreatedAt: m.CreatedAt.AsTime(), UpdatedAt: m.UpdatedAt.AsTime(),
	}
}

// File is a file of a codebase.
type File struct {
	Path       vpath.Path
	Mode       uint32 // type and permission bits, as st_mode (inode(7))
	SizeBytes  int64
	ModifiedAt time.Time
	LinkTarget string // of a symbolic link
}

// EncodeFile returns the description of a file.
func EncodeFile(f File) *sandboxv1.FileInfo {
	return &sandboxv1.FileInfo{
		Path: f.Path.Text(), Name: vpath.EncodeText(f.Path.Base()), IsDir: f.Mode&unix.S_IFMT == unix.S_IFDIR, Size: f.SizeBytes,
		ModifiedAt: timestamppb.New(f.ModifiedAt), Mode: f.Mode, SymlinkTarget: vpath.EncodeText(f.LinkTarget),
	}
}

// DecodeFile is the reverse of EncodeFile. Errors: Internal for an invalid path.
func DecodeFile(m *sandboxv1.FileInfo) (File, error) {
	path, err := decodePath(m.Path)
	return File{
		Path: path, Mode: m.Mode, SizeBytes: m.Size, ModifiedAt: decodeTime(m.ModifiedAt), LinkTarget: vpath.DecodeText(m.SymlinkTarget),
	}, err
}
