package client

import (
	"context"
	"errors"
	"iter"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
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

// RuntimeType is what confines a sandbox.
type RuntimeType string

// The runtimes. The empty one is the server's default.
const (
	Bwrap  RuntimeType = "bwrap"
	Docker RuntimeType = "docker"
)

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
	// Variables are the names of those that WithEnv gave all its commands.
	Variables []string
	// Usage is what it holds; nil unless it was listed WithUsage, and where the server
	// cannot tell.
	Usage *SandboxUsage
	// Home is the home directory of its commands.
	Home Home
}

// Home says which home directory commands have.
type Home string

// The homes.
const (
	HomePrivate Home = "private" // new and empty with each start
	HomeKeep    Home = "keep"    // the same until the sandbox is destroyed
)

// SandboxUsage is what a sandbox holds, found by a bounded look.
type SandboxUsage struct {
	PendingChanges int64 // neither applied nor carried over
	MoreChanges    bool  // there are more than that
	DiskBytes      int64
	MoreDisk       bool
}

func usageFrom(u *sandboxv1.SandboxUsage) *SandboxUsage {
	if u == nil {
		return nil
	}
	return &SandboxUsage{
		PendingChanges: u.PendingChanges, MoreChanges: u.PendingChangesMore, DiskBytes: u.DiskBytes, MoreDisk: u.DiskBytesMore,
	}
}

// SyncMode says when what a sandbox changes reaches its codebase.
type SyncMode string

// The modes.
const (
	SyncOnExec SyncMode = "on_exec" // when a command ends
	SyncOnStop SyncMode = "on_stop" // when the sandbox stops
	SyncManual SyncMode = "manual"  // by Apply alone
)

func infoFrom(b *sandboxv1.Sandbox) SandboxInfo {
	return SandboxInfo{
		ID: b.Id, Name: b.Name, CodebaseID: b.CodebaseId, OwnerID: b.OwnerId,
		Status: SandboxStatus(knownWord("SANDBOX_STATUS_", b.Status)), StatusReason: b.StatusReason, Permissions: rulesFrom(b.Permissions), Labels: b.Labels,
		Runtime: RuntimeType(knownWord("RUNTIME_TYPE_", b.Runtime)), Image: b.Image, Resources: limitsFrom(b.Resources),
		CreatedAt: timeFrom(b.CreatedAt), StartedAt: timeFrom(b.StartedAt), StoppedAt: timeFrom(b.StoppedAt), ExpiresAt: timeFrom(b.ExpiresAt), SyncHeld: b.SyncHeld, Sync: SyncMode(knownWord("SYNC_MODE_", b.Sync)),
		Workspace: first(vpath.DecodeText(b.Workspace), "/workspace"), Usage: usageFrom(b.Usage), Variables: namesFrom(b.Variables),
		Home: Home(first(b.Home, string(HomePrivate))),
	}
}

func namesFrom(sent []string) []string {
	var names []string
	for _, name := range sent {
		names = append(names, vpath.DecodeText(name))
	}
	return names
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
	unnoted    error  // why it is not known what FromLocal has uploaded
	ownsClient bool
	shown      atomic.Pointer[shown] // by the last review
	released   atomic.Bool           // the client of its own
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

// given are the rules of a sandbox that is made.
func (s *settings) given() ([]PermissionRule, error) {
	given := Policy{Preset: s.preset, Rules: s.rules}
	switch {
	case s.policy != nil && (s.preset != "" || len(s.rules) > 0):
		return nil, invalid("create sandbox", errors.New("WithPolicy stands in the place of WithPreset and WithPermissions"))
	case s.policy != nil:
		given = *s.policy
	case s.preset == "":
		given.Preset = DefaultPreset
	}
	return given.All()
}

func (s *settings) request(codebaseID string) (*sandboxv1.CreateSandboxRequest, error) {
	const operation = "create sandbox"
	rules, err := s.given()
	if err != nil {
		return nil, err
	}
	sent, err := rulesOf(operation, rules)
	if err != nil {
		return nil, err
	}
	runtime, ok := value[sandboxv1.RuntimeType]("RUNTIME_TYPE_", string(s.runtime), sandboxv1.RuntimeType_value)
	if !ok {
		return nil, failure(operation, `unknown runtime "`+string(s.runtime)+`"`, ErrInvalid)
	}
	sync, ok := value[sandboxv1.SyncMode]("SYNC_MODE_", string(s.sync), sandboxv1.SyncMode_value)
	if !ok {
		return nil, failure(operation, `unknown sync mode "`+string(s.sync)+`"`, ErrInvalid)
	}
	r := &sandboxv1.CreateSandboxRequest{
		CodebaseId: codebaseID, Name: s.name, Permissions: sent, Labels: s.labels, Runtime: runtime, Image: s.image, Sync: sync, User: s.user, AtHostPath: s.atHostPath, Env: s.env, Home: string(s.home),
	}
	git := s.git
	if git == nil {
		git = new(gitconfig.Of(os.Getenv, first(s.dir, "/")))
	}
	r.GitUser = &sandboxv1.GitUser{Name: git.Name, Email: git.Email}
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
			CodebaseId: f.codebaseID, OwnerId: f.ownerID, Name: f.name, Labels: f.labels, WithUsage: f.usage, PageToken: token,
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
