package control_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/apiversion"
)

const (
	hostileSandbox  = "sb_0123456789abcdef"
	hostileCodebase = "cb_0123456789abcdef"
	hostileDigest   = "00000000000000000000000000000000000000000000000000000000deadbeef"
	// hostileWord is in all that the server sends.
	hostileWord = "EVIL"
	// hostileText steers a terminal, if it gets there as it is.
	hostileText = "\x1b]0;pwned\x07\x1b[2J\r\u009b31m\u202e"
)

// hostile is a server that takes an upload, and then shows and sends what a test
// says.
type hostile struct {
	sandboxv1.UnimplementedCodebaseServiceServer
	sandboxv1.UnimplementedSandboxServiceServer
	shows  []*sandboxv1.FileDiff
	sends  func(send func(*sandboxv1.ReadChangesResponse) error) error
	reason string // of every outcome
	// wants are variables that it says a sandbox has; got is what a command came with.
	wants []string
	got   chan *sandboxv1.AttachRequest_Start
	made  atomic.Bool // whether a sandbox was
}

func (*hostile) CreateCodebase(context.Context, *sandboxv1.CreateCodebaseRequest) (*sandboxv1.Codebase, error) {
	return &sandboxv1.Codebase{Id: hostileCodebase}, nil
}

func (*hostile) GetCodebase(context.Context, *sandboxv1.GetCodebaseRequest) (*sandboxv1.Codebase, error) {
	return &sandboxv1.Codebase{Id: hostileCodebase}, nil
}

func (*hostile) UploadTree(from sandboxv1.CodebaseService_UploadTreeServer) error {
	for {
		if _, err := from.Recv(); errors.Is(err, io.EOF) {
			return from.SendAndClose(&sandboxv1.UploadTreeResult{CodebaseId: hostileCodebase})
		} else if err != nil {
			return err
		}
	}
}

func (h *hostile) sandbox() *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{
		Id: hostileSandbox, Name: "fix", CodebaseId: hostileCodebase, Status: sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED,
		Sync: sandboxv1.SyncMode_SYNC_MODE_MANUAL, StatusReason: h.reason, OwnerId: h.reason, Image: h.reason, Variables: h.wants,
	}
}

func (h *hostile) Attach(with sandboxv1.SandboxService_AttachServer) error {
	first, err := with.Recv()
	if err != nil {
		return err
	}
	h.got <- first.GetStart()
	return with.Send(&sandboxv1.ExecOutput{ExitCode: new(int32)})
}

func (*hostile) StartSandbox(context.Context, *sandboxv1.StartSandboxRequest) (*sandboxv1.Sandbox, error) {
	return &sandboxv1.Sandbox{Id: hostileSandbox}, nil
}

func (*hostile) GetStats(context.Context, *sandboxv1.GetStatsRequest) (*sandboxv1.Stats, error) {
	return &sandboxv1.Stats{Execs: 1}, nil
}

func (*hostile) Audit(*sandboxv1.AuditRequest, sandboxv1.SandboxService_AuditServer) error {
	return nil
}

func (h *hostile) CreateSandbox(context.Context, *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	h.made.Store(true)
	return h.sandbox(), nil
}

func (h *hostile) GetSandbox(context.Context, *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	return h.sandbox(), nil
}

// ListSandboxes lists the sandbox once it was made: until then the client must find its
// name free.
func (h *hostile) ListSandboxes(context.Context, *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	if !h.made.Load() {
		return &sandboxv1.ListSandboxesResponse{}, nil
	}
	return &sandboxv1.ListSandboxesResponse{Sandboxes: []*sandboxv1.Sandbox{h.sandbox()}}, nil
}

func (h *hostile) Diff(context.Context, *sandboxv1.DiffRequest) (*sandboxv1.DiffResponse, error) {
	return &sandboxv1.DiffResponse{Files: h.shows, Digest: hostileDigest, Groups: []*sandboxv1.ChangeGroup{{Name: h.reason, Lines: []string{h.reason}}}}, nil
}

func (h *hostile) ReadChanges(_ *sandboxv1.ReadChangesRequest, to sandboxv1.SandboxService_ReadChangesServer) error {
	return h.sends(to.Send)
}

func (h *hostile) Apply(context.Context, *sandboxv1.ApplyRequest) (*sandboxv1.ApplyResponse, error) {
	answer := &sandboxv1.ApplyResponse{WrittenAgain: []string{h.reason}}
	for _, f := range h.shows {
		answer.Results = append(answer.Results, &sandboxv1.PathOutcome{
			Path: f.Path, Status: f.Status, Outcome: sandboxv1.Outcome_OUTCOME_FAILED, Reason: h.reason,
		})
	}
	return answer, nil
}

func (*hostile) DestroySandbox(context.Context, *sandboxv1.DestroySandboxRequest) (*sandboxv1.Empty, error) {
	return &sandboxv1.Empty{}, nil
}

func (*hostile) DeleteCodebase(context.Context, *sandboxv1.DeleteCodebaseRequest) (*sandboxv1.Empty, error) {
	return &sandboxv1.Empty{}, nil
}

// change is what the server says of a path.
type change struct {
	path    string
	status  sandboxv1.ChangeStatus
	mode    uint32
	content string // of a file, or the target of a link
	size    int64  // that is announced, unless it is 0
}

const (
	added    = sandboxv1.ChangeStatus_CHANGE_STATUS_ADDED
	modified = sandboxv1.ChangeStatus_CHANGE_STATUS_MODIFIED
	deleted  = sandboxv1.ChangeStatus_CHANGE_STATUS_DELETED
	retyped  = sandboxv1.ChangeStatus_CHANGE_STATUS_RETYPED

	evilFile = unix.S_IFREG | 0o755
)

func (c change) state() *sandboxv1.FileState {
	s := &sandboxv1.FileState{Mode: c.mode, Size: int64(len(c.content))}
	if c.size != 0 {
		s.Size = c.size
	}
	switch c.mode & unix.S_IFMT {
	case 0:
		return nil
	case unix.S_IFLNK:
		s.SymlinkTarget = c.content
	case unix.S_IFREG:
		sum := sha256.Sum256([]byte(c.content))
		s.Sha256 = hex.EncodeToString(sum[:])
	}
	return s
}

func (h *hostile) shown(c change) *sandboxv1.FileDiff {
	d := &sandboxv1.FileDiff{Path: c.path, Status: c.status, New: c.state(), Binary: true, RiskReason: h.reason, Group: h.reason}
	if c.status != added {
		d.Old = &sandboxv1.FileState{Mode: unix.S_IFREG | 0o644}
	}
	return d
}

func header(c change, reason string) *sandboxv1.ReadChangesResponse {
	return &sandboxv1.ReadChangesResponse{Message: &sandboxv1.ReadChangesResponse_Change_{Change: &sandboxv1.ReadChangesResponse_Change{
		Path: c.path, Status: c.status, Outcome: sandboxv1.Outcome_OUTCOME_APPLIED, Reason: reason, State: c.state(),
	}}}
}

func piece(text string) *sandboxv1.ReadChangesResponse {
	return &sandboxv1.ReadChangesResponse{Message: &sandboxv1.ReadChangesResponse_Data{Data: []byte(text)}}
}

// sending sends the changes.
func (h *hostile) sending(changes ...change) {
	h.sends = func(send func(*sandboxv1.ReadChangesResponse) error) error {
		for _, c := range changes {
			err := send(header(c, h.reason))
			if err == nil && c.mode&unix.S_IFMT == unix.S_IFREG {
				err = send(piece(c.content))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// sayingLevel makes the server one of agentfense's.
func sayingLevel(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs(apiversion.Header, apiversion.Here().String())); err != nil {
		return nil, err
	}
	return handle(ctx, r)
}
