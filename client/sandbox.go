package client

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/vpath"
)

// SandboxStatus is where a sandbox stands in its life.
type SandboxStatus string

// The states.
const (
	StatusPending SandboxStatus = "pending" // made, never started
	StatusRunning SandboxStatus = "running"
	StatusStopped SandboxStatus = "stopped"
	StatusError   SandboxStatus = "error" // SandboxInfo.StatusReason says why
)

var statuses = map[sandboxv1.SandboxStatus]SandboxStatus{
	sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING: StatusPending, sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING: StatusRunning,
	sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED: StatusStopped, sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR: StatusError,
}

// RuntimeType is what confines a sandbox.
type RuntimeType string

// The runtimes. The empty one is the server's default.
const (
	Bwrap  RuntimeType = "bwrap"
	Docker RuntimeType = "docker"
)

var runtimes = map[RuntimeType]sandboxv1.RuntimeType{
	"": sandboxv1.RuntimeType_RUNTIME_TYPE_UNSPECIFIED, Bwrap: sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP,
	Docker: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER,
}

// ResourceLimits bound a sandbox. Zero is no limit.
type ResourceLimits struct {
	MemoryBytes int64
	// CPUQuota is processor time in each 100 ms: with 250 ms two processors and a half.
	CPUQuota   time.Duration
	CPUShares  int64 // a weight, 1024 is the usual one
	PIDsLimit  int64
	DiskBytes  int64 // of the delta
	DiskInodes int64
}

// SandboxInfo is what the server says of a sandbox.
type SandboxInfo struct {
	ID, Name, CodebaseID, OwnerID string
	Status                        SandboxStatus
	StatusReason                  string           // of StatusError
	Permissions                   []PermissionRule // as they were sent
	Labels                        map[string]string
	Runtime                       RuntimeType
	Image                         string
	Resources                     ResourceLimits
	CreatedAt                     time.Time
	StartedAt, StoppedAt          time.Time // zero: not yet
	ExpiresAt                     time.Time // zero: never
	// SyncHeld says that its changes reach the codebase by Apply alone: a token
	// without the scope apply has run a command in it.
	SyncHeld bool
	// Sync is when its changes reach its codebase; "" of a server that does not tell.
	Sync SyncMode
	// Workspace is where commands see the codebase: /workspace, or the path of a
	// linked one on the host.
	Workspace string
}

// SyncMode says when what a sandbox changes reaches its codebase.
type SyncMode string

// The modes.
const (
	SyncOnExec SyncMode = "on_exec" // when a command ends
	SyncOnStop SyncMode = "on_stop" // when the sandbox stops
	SyncManual SyncMode = "manual"  // by Apply alone
)

var syncModes = map[SyncMode]sandboxv1.SyncMode{
	"":         sandboxv1.SyncMode_SYNC_MODE_UNSPECIFIED,
	SyncOnExec: sandboxv1.SyncMode_SYNC_MODE_ON_EXEC,
	SyncOnStop: sandboxv1.SyncMode_SYNC_MODE_ON_STOP,
	SyncManual: sandboxv1.SyncMode_SYNC_MODE_MANUAL,
}

func syncFrom(sent sandboxv1.SyncMode) SyncMode {
	for word, value := range syncModes {
		if value == sent {
			return word
		}
	}
	return ""
}

func infoFrom(b *sandboxv1.Sandbox) SandboxInfo {
	return SandboxInfo{
		ID: b.Id, Name: b.Name, CodebaseID: b.CodebaseId, OwnerID: b.OwnerId,
		Status: statuses[b.Status], StatusReason: b.StatusReason, Permissions: rulesFrom(b.Permissions), Labels: b.Labels,
		Runtime: runtimeFrom(b.Runtime), Image: b.Image, Resources: limitsFrom(b.Resources),
		CreatedAt: timeFrom(b.CreatedAt), StartedAt: timeFrom(b.StartedAt), StoppedAt: timeFrom(b.StoppedAt), ExpiresAt: timeFrom(b.ExpiresAt), SyncHeld: b.SyncHeld, Sync: syncFrom(b.Sync),
		Workspace: first(vpath.DecodeText(b.Workspace), "/workspace"),
	}
}

func runtimeFrom(sent sandboxv1.RuntimeType) RuntimeType {
	for word, value := range runtimes {
		if value == sent {
			return word
		}
	}
	return ""
}

func limitsFrom(l *sandboxv1.ResourceLimits) ResourceLimits {
	return ResourceLimits{
		MemoryBytes: l.GetMemoryBytes(), CPUQuota: time.Duration(l.GetCpuQuota()) * time.Microsecond, CPUShares: l.GetCpuShares(), PIDsLimit: l.GetPidsLimit(),
		DiskBytes: l.GetDiskBytes(), DiskInodes: l.GetDiskInodes(),
	}
}

// timeFrom is the zero time for a stamp that is not set.
func timeFrom(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Sandbox is one sandbox of a server.
type Sandbox struct {
	ID string
	// Files are the files as a command inside sees them.
	Files SandboxFiles

	c          *Client
	made       bool   // by us, and not found
	codebaseID string // that FromLocal made
	ownsClient bool
	released   atomic.Bool // the client of its own
	lost       atomic.Int64
}

func (c *Client) sandbox(id string, made bool) *Sandbox {
	return &Sandbox{ID: id, Files: SandboxFiles{c: c, id: id}, c: c, made: made}
}

// CreateSandbox makes a sandbox of a codebase and starts it. If it does not
// start it is removed again, unless somebody else has used it meanwhile.
// Errors: ErrInvalid, ErrNotFound, ErrExhausted beyond the owner's limit;
// ErrPrecondition for what the server's host cannot do.
func (c *Client) CreateSandbox(ctx context.Context, codebaseID string, options ...SandboxOption) (*Sandbox, error) {
	return c.createSandbox(ctx, codebaseID, collect(options))
}

func (c *Client) createSandbox(ctx context.Context, codebaseID string, o *settings) (*Sandbox, error) {
	request, err := o.request(codebaseID)
	if err != nil {
		return nil, err
	}
	got, err := lasting(ctx, c.sandboxes.CreateSandbox, request, func(ctx context.Context, made *sandboxv1.Sandbox) error {
		return c.destroyUnused(ctx, made.Id)
	})
	if err != nil {
		return nil, c.fail(ctx, "create sandbox", err)
	}
	s := c.sandbox(got.Id, true)
	if o.leaveStopped {
		return s, nil
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, c.undo(ctx, func(ctx context.Context, c *Client) error { return c.destroyUnused(ctx, s.ID) }))
	}
	return s, nil
}

func (s *settings) request(codebaseID string) (*sandboxv1.CreateSandboxRequest, error) {
	const operation = "create sandbox"
	given := Policy{Preset: s.preset, Rules: s.rules}
	switch {
	case s.policy != nil && (s.preset != "" || len(s.rules) > 0):
		return nil, invalid(operation, errors.New("WithPolicy stands in the place of WithPreset and WithPermissions"))
	case s.policy != nil:
		given = *s.policy
	case s.preset == "":
		given.Preset = DefaultPreset
	}
	rules, err := given.All()
	if err != nil {
		return nil, err
	}
	sent, err := rulesOf(operation, rules)
	if err != nil {
		return nil, err
	}
	runtime, ok := runtimes[s.runtime]
	if !ok {
		return nil, failure(operation, `unknown runtime "`+string(s.runtime)+`"`, ErrInvalid)
	}
	sync, ok := syncModes[s.sync]
	if !ok {
		return nil, failure(operation, `unknown sync mode "`+string(s.sync)+`"`, ErrInvalid)
	}
	r := &sandboxv1.CreateSandboxRequest{
		CodebaseId: codebaseID, Name: s.name, Permissions: sent, Labels: s.labels, Runtime: runtime, Image: s.image, Sync: sync, User: s.user, AtHostPath: s.atHostPath,
	}
	if s.expiresIn != 0 {
		r.ExpiresIn = durationpb.New(s.expiresIn)
	}
	if s.limits != (ResourceLimits{}) {
		l := s.limits
		r.Resources = &sandboxv1.ResourceLimits{
			MemoryBytes: l.MemoryBytes, CpuQuota: l.CPUQuota.Microseconds(), CpuShares: l.CPUShares, PidsLimit: l.PIDsLimit,
			DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes,
		}
	}
	return r, nil
}

// Sandbox is the sandbox with an id. Errors: ErrNotFound.
func (c *Client) Sandbox(ctx context.Context, id string) (*Sandbox, error) {
	s := c.sandbox(id, false)
	_, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Sandboxes lists those that the token reaches, or of them those that the options
// ask for.
func (c *Client) Sandboxes(ctx context.Context, options ...ListOption) iter.Seq2[SandboxInfo, error] {
	f := collect(options)
	return pages(func(token string) ([]*sandboxv1.Sandbox, string, error) {
		page, err := c.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{
			CodebaseId: f.codebaseID, OwnerId: f.ownerID, Name: f.name, Labels: f.labels, PageToken: token,
		})
		return page.GetSandboxes(), page.GetNextPageToken(), c.fail(ctx, "list sandboxes", err)
	}, infoFrom)
}

// Info asks the server. Errors: ErrNotFound.
func (s *Sandbox) Info(ctx context.Context) (SandboxInfo, error) {
	got, err := s.c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: s.ID})
	if err != nil {
		return SandboxInfo{}, s.c.fail(ctx, "get sandbox", err)
	}
	return infoFrom(got), nil
}

// Start starts it. Errors: ErrPrecondition if it runs, or the host cannot.
func (s *Sandbox) Start(ctx context.Context) error {
	_, err := s.c.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: s.ID})
	return s.c.fail(ctx, "start sandbox", err)
}

// Stop ends its commands; what it changed stays. Errors: ErrNotRunning.
func (s *Sandbox) Stop(ctx context.Context) error {
	_, err := s.c.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: s.ID})
	return s.c.fail(ctx, "stop sandbox", err)
}
