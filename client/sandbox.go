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

// SandboxStatus is the state of a sandbox.
type SandboxStatus string

// The states.
const (
	StatusPending SandboxStatus = "pending" // created, but never started
	StatusRunning SandboxStatus = "running"
	StatusStopped SandboxStatus = "stopped"
	StatusError   SandboxStatus = "error" // SandboxInfo.StatusReason has the reason
)

// RuntimeType is what confines a sandbox.
type RuntimeType string

// The runtimes. The empty one is the server's default.
const (
	Bwrap  RuntimeType = "bwrap"
	Docker RuntimeType = "docker"
)

// ResourceLimits limit a sandbox. Zero is no limit.
type ResourceLimits struct {
	MemoryBytes int64
	// CPUQuota is processor time in each 100 ms: 250 ms are two and a half processors.
	CPUQuota   time.Duration
	CPUShares  int64 // weight relative to others, default 1024
	PIDsLimit  int64
	DiskBytes  int64 // of the sandbox's changes
	DiskInodes int64
}

// SandboxInfo describes a sandbox.
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
	// SyncHeld means that only Apply brings its changes into the codebase, because a token without
	// the scope apply ran a command in it.
	SyncHeld bool
	// Sync is when its changes reach its codebase; "" from a server that does not send it.
	Sync SyncMode
	// Workspace is where commands see the codebase: /workspace, or the path of a linked one on the
	// host.
	Workspace string
	// Variables are the names of the variables that WithEnv set for all its commands.
	Variables []string
	// Usage is what it holds; nil without WithUsage, and if the server cannot read it.
	Usage *SandboxUsage
	// Home is the home directory of its commands.
	Home Home
	// AllowNet are the hosts that its commands may reach.
	AllowNet []AllowedHost
	// NetLimits are the limits of its network, such as "out=50M", with those of the server's
	// configuration.
	NetLimits []string
	// Publish are the ports inside that the server's host shows, as "HOSTPORT:PORT", at the address
	// PublishAddress of the host.
	Publish        []string
	PublishAddress string
	// AskTimeout is how long refusals wait for an answer; 0: they do not wait.
	AskTimeout time.Duration
	// Board says that programs inside may use the board of the codebase.
	Board bool
	// Git is the clean repository that commands see, as "clean:DEPTH" or "clean:all"; "": they see
	// that of the codebase.
	Git string
	// UnsavedBranches counts what has commits, in the clean repository, that are nowhere else.
	UnsavedBranches int64
	// Grants are the paths that were granted beside Permissions, by GrantPath or by an answer.
	Grants []PathGrant
	// Mounts are directories of the server's host that it shows besides its workspace. Each has a
	// place, a name and a mode, and those of every mode but "ro" have rules.
	Mounts []Mount
	// Scratch are directories of the workspace with contents that are neither reviewed nor applied.
	Scratch []string
	// Secrets are what its commands use and do not know.
	Secrets []SandboxSecret
}

// Home is the kind of home directory of commands.
type Home string

// The kinds of home directories.
const (
	HomePrivate Home = "private" // new and empty with each start
	HomeKeep    Home = "keep"    // the same until the sandbox is destroyed
)

// SandboxUsage is what a sandbox holds. The server counts at most 2000 of its entries.
type SandboxUsage struct {
	PendingChanges int64 // neither applied nor synced
	MoreChanges    bool  // there are more
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

// SyncMode says when a sandbox's changes reach its codebase.
type SyncMode string

// The modes.
const (
	SyncOnExec SyncMode = "on_exec" // when a command ends
	SyncOnStop SyncMode = "on_stop" // when the sandbox stops
	SyncManual SyncMode = "manual"  // only by Apply
)

func infoFrom(b *sandboxv1.Sandbox) SandboxInfo {
	return SandboxInfo{
		ID: b.Id, Name: b.Name, CodebaseID: b.CodebaseId, OwnerID: b.OwnerId,
		Status: SandboxStatus(knownWord("SANDBOX_STATUS_", b.Status)), StatusReason: b.StatusReason, Permissions: rulesFrom(b.Permissions), Labels: b.Labels,
		Runtime: RuntimeType(knownWord("RUNTIME_TYPE_", b.Runtime)), Image: b.Image, Resources: limitsFrom(b.Resources),
		CreatedAt: timeFrom(b.CreatedAt), StartedAt: timeFrom(b.StartedAt), StoppedAt: timeFrom(b.StoppedAt), ExpiresAt: timeFrom(b.ExpiresAt), SyncHeld: b.SyncHeld, Sync: SyncMode(knownWord("SYNC_MODE_", b.Sync)),
		Workspace: first(vpath.DecodeText(b.Workspace), "/workspace"), Usage: usageFrom(b.Usage), Variables: namesFrom(b.Variables),
		Home: Home(first(b.Home, string(HomePrivate))), AllowNet: hostsFrom(b.AllowNet), NetLimits: b.NetLimits, Publish: b.Publish, PublishAddress: b.PublishAddress,
		AskTimeout: b.AskTimeout.AsDuration(), Board: b.Board, Git: b.Git, UnsavedBranches: b.UnsavedBranches, Grants: grantsFrom(b.Grants),
		Mounts: mountsFrom(b.Mounts), Scratch: namesFrom(b.Scratch), Secrets: secretsFrom(b.Secrets),
	}
}

func namesFrom(sent []string) []string {
	var names []string
	for _, name := range sent {
		names = append(names, vpath.DecodeText(name))
	}
	return names
}

func limitsOf(l ResourceLimits) *sandboxv1.ResourceLimits {
	return &sandboxv1.ResourceLimits{
		MemoryBytes: l.MemoryBytes, CpuQuota: l.CPUQuota.Microseconds(), CpuShares: l.CPUShares, PidsLimit: l.PIDsLimit,
		DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes,
	}
}

func limitsFrom(l *sandboxv1.ResourceLimits) ResourceLimits {
	return ResourceLimits{
		MemoryBytes: l.GetMemoryBytes(), CPUQuota: time.Duration(l.GetCpuQuota()) * time.Microsecond, CPUShares: l.GetCpuShares(), PIDsLimit: l.GetPidsLimit(),
		DiskBytes: l.GetDiskBytes(), DiskInodes: l.GetDiskInodes(),
	}
}

// timeFrom converts a timestamp; an absent one is the zero time.
func timeFrom(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Sandbox is a sandbox of a server.
type Sandbox struct {
	ID string
	// Files is the sandbox's view.
	Files SandboxFiles

	c          *Client
	made       bool   // this client created it
	codebaseID string // of FromLocal
	unnoted    error  // why the upload of FromLocal was not recorded
	ownsClient bool
	shown      atomic.Pointer[shown] // by the last review
	released   atomic.Bool           // its own client
	lost       atomic.Int64
}

func (c *Client) sandbox(id string, made bool) *Sandbox {
	return &Sandbox{ID: id, Files: SandboxFiles{c: c, id: id}, c: c, made: made}
}

// CreateSandbox creates a sandbox from a codebase and starts it. If the start fails, it removes the
// sandbox, unless another client has used it meanwhile. Errors: ErrInvalid, ErrNotFound,
// ErrExhausted beyond the owner's limit; ErrPrecondition for a runtime or limit that the server's
// host does not support.
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

// given returns the rules of a new sandbox.
func (s *settings) given() ([]PermissionRule, error) {
	given := Policy{Preset: s.preset, Rules: s.rules}
	switch {
	case s.policy != nil && (s.preset != "" || len(s.rules) > 0):
		return nil, invalid("create sandbox", errors.New("use either WithPolicy, or WithPreset and WithPermissions"))
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
	mounts, err := mountsOf(operation, s.mounts)
	if err != nil {
		return nil, err
	}
	r := &sandboxv1.CreateSandboxRequest{
		CodebaseId: codebaseID, Name: s.name, Permissions: sent, Labels: s.labels, Runtime: runtime, Image: s.image, Sync: sync, User: s.user, AtHostPath: s.atHostPath, Env: s.env, Home: string(s.home), AllowNet: s.allowNet,
		NetLimits: s.netLimits, Publish: s.publish, Mounts: mounts, Scratch: encoded(s.scratch), Secrets: s.secrets, Board: s.board, Git: s.repository,
	}
	r.GitUser = s.gitUser()
	if s.ask != 0 {
		r.AskTimeout = durationpb.New(s.ask)
	}
	if s.expiresIn != 0 {
		r.ExpiresIn = durationpb.New(s.expiresIn)
	}
	if s.limits != (ResourceLimits{}) {
		r.Resources = limitsOf(s.limits)
	}
	return r, nil
}

// gitUser is who this user is for git.
func (s *settings) gitUser() *sandboxv1.GitUser {
	git := s.git
	if git == nil {
		git = new(gitconfig.Of(os.Getenv, first(s.dir, "/")))
	}
	return &sandboxv1.GitUser{Name: git.Name, Email: git.Email}
}

// Sandbox returns the sandbox with an id. Errors: ErrNotFound.
func (c *Client) Sandbox(ctx context.Context, id string) (*Sandbox, error) {
	s := c.sandbox(id, false)
	_, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Sandboxes lists the sandboxes that the token reaches and the options select.
func (c *Client) Sandboxes(ctx context.Context, options ...ListOption) iter.Seq2[SandboxInfo, error] {
	f := collect(options)
	return pages(func(token string) ([]*sandboxv1.Sandbox, string, error) {
		page, err := c.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{
			CodebaseId: f.codebaseID, OwnerId: f.ownerID, Name: f.name, Labels: f.labels, WithUsage: f.usage, PageToken: token,
		})
		return page.GetSandboxes(), page.GetNextPageToken(), c.fail(ctx, "list sandboxes", err)
	}, infoFrom)
}

// Info returns the sandbox's current description. Errors: ErrNotFound.
func (s *Sandbox) Info(ctx context.Context) (SandboxInfo, error) {
	got, err := s.c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: s.ID})
	if err != nil {
		return SandboxInfo{}, s.c.fail(ctx, "get sandbox", err)
	}
	return infoFrom(got), nil
}

// Start starts the sandbox. Errors: ErrPrecondition if it is running, or if the host cannot start
// it.
func (s *Sandbox) Start(ctx context.Context) error {
	_, err := s.c.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: s.ID})
	return s.c.fail(ctx, "start sandbox", err)
}

// Stop ends all commands and keeps the changes. Errors: ErrNotRunning.
func (s *Sandbox) Stop(ctx context.Context) error {
	_, err := s.c.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: s.ID})
	return s.c.fail(ctx, "stop sandbox", err)
}
