package client

import (
	"context"
	"iter"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Status is where a sandbox stands in its life.
type Status string

// The states.
const (
	Pending Status = "pending" // made, never started
	Running Status = "running"
	Stopped Status = "stopped"
	Failed  Status = "error" // Info.StatusReason says why
)

var statuses = map[sandboxv1.SandboxStatus]Status{
	sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING: Pending, sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING: Running,
	sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED: Stopped, sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR: Failed,
}

// Runtime is what confines a sandbox.
type Runtime string

// The runtimes. The empty one is the server's default.
const (
	Bwrap  Runtime = "bwrap"
	Docker Runtime = "docker"
)

var runtimes = map[Runtime]sandboxv1.RuntimeType{
	"": sandboxv1.RuntimeType_RUNTIME_TYPE_UNSPECIFIED, Bwrap: sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP,
	Docker: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER,
}

// Limits bound a sandbox. Zero is no limit.
type Limits struct {
	MemoryBytes int64
	CPUs        float64
	CPUShares   int64 // a weight, 1024 is the usual one
	PIDs        int64
	DiskBytes   int64 // of the delta
	DiskInodes  int64
}

// cpuPeriod is the length of which ResourceLimits.cpu_quota is a part, in us.
const cpuPeriod = 100_000

// Info is what the server says of a sandbox.
type Info struct {
	ID, Name, CodebaseID, OwnerID string
	Status                        Status
	StatusReason                  string // of Failed
	Rules                         []Rule // as they were sent
	Labels                        map[string]string
	Image                         string
	CreatedAt                     time.Time
	StartedAt, StoppedAt          time.Time // zero: not yet
	ExpiresAt                     time.Time // zero: never
}

func infoFrom(b *sandboxv1.Sandbox) Info {
	return Info{
		ID: b.Id, Name: b.Name, CodebaseID: b.CodebaseId, OwnerID: b.OwnerId,
		Status: statuses[b.Status], StatusReason: b.StatusReason, Rules: rulesFrom(b.Permissions), Labels: b.Labels, Image: b.Image,
		CreatedAt: timeFrom(b.CreatedAt), StartedAt: timeFrom(b.StartedAt), StoppedAt: timeFrom(b.StoppedAt), ExpiresAt: timeFrom(b.ExpiresAt),
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

	c *Client
}

// CreateSandbox makes a sandbox of a codebase and starts it. If it does not
// start it is removed again.
// Errors: ErrInvalid, ErrNotFound, ErrExhausted beyond the owner's limit;
// ErrPrecondition for what the server's host cannot do.
func (c *Client) CreateSandbox(ctx context.Context, codebaseID string, options ...SandboxOption) (*Sandbox, error) {
	o := collect(options)
	request, err := o.request(codebaseID)
	if err != nil {
		return nil, err
	}
	made, err := c.sandboxes.CreateSandbox(ctx, request)
	if err != nil {
		return nil, fail(ctx, "create sandbox", err)
	}
	s := &Sandbox{made.Id, c}
	if o.leaveStopped {
		return s, nil
	}
	if err := s.Start(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
		defer cancel()
		_ = s.Destroy(ctx) // the first error is the one to tell
		return nil, err
	}
	return s, nil
}

// cleanPatience bounds the removal of what an error has left.
const cleanPatience = 30 * time.Second

func (o *settings) request(codebaseID string) (*sandboxv1.CreateSandboxRequest, error) {
	const operation = "create sandbox"
	rules := o.rules
	if preset := o.preset; preset != "" || len(rules) == 0 {
		of, err := Preset(first(preset, DefaultPreset))
		if err != nil {
			return nil, err
		}
		rules = append(of, rules...)
	}
	sent, err := rulesOf(operation, rules)
	if err != nil {
		return nil, err
	}
	runtime, ok := runtimes[o.runtime]
	if !ok {
		return nil, &Error{operation, `unknown runtime "` + string(o.runtime) + `"`, []error{ErrInvalid}}
	}
	r := &sandboxv1.CreateSandboxRequest{
		CodebaseId: codebaseID, Name: o.name, Permissions: sent, Labels: o.labels, Runtime: runtime, Image: o.image,
	}
	if o.expiresIn != 0 {
		r.ExpiresIn = durationpb.New(o.expiresIn)
	}
	if o.limits != (Limits{}) {
		l := o.limits
		r.Resources = &sandboxv1.ResourceLimits{
			MemoryBytes: l.MemoryBytes, CpuQuota: int64(math.Round(l.CPUs * cpuPeriod)), CpuShares: l.CPUShares, PidsLimit: l.PIDs,
			DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes,
		}
	}
	return r, nil
}

// Sandbox is the sandbox with an id. Errors: ErrNotFound.
func (c *Client) Sandbox(ctx context.Context, id string) (*Sandbox, error) {
	s := &Sandbox{id, c}
	_, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Sandboxes lists those that the token reaches, or of them those that the options
// ask for.
func (c *Client) Sandboxes(ctx context.Context, options ...ListOption) iter.Seq2[Info, error] {
	f := collect(options)
	return pages(func(token string) ([]*sandboxv1.Sandbox, string, error) {
		page, err := c.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{
			CodebaseId: f.codebaseID, OwnerId: f.ownerID, Name: f.name, Labels: f.labels, PageToken: token,
		})
		return page.GetSandboxes(), page.GetNextPageToken(), fail(ctx, "list sandboxes", err)
	}, infoFrom)
}

// Info asks the server. Errors: ErrNotFound.
func (s *Sandbox) Info(ctx context.Context) (Info, error) {
	got, err := s.c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: s.ID})
	if err != nil {
		return Info{}, fail(ctx, "get sandbox", err)
	}
	return infoFrom(got), nil
}

// Start starts it. Errors: ErrPrecondition if it runs, or the host cannot.
func (s *Sandbox) Start(ctx context.Context) error {
	_, err := s.c.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: s.ID})
	return fail(ctx, "start sandbox", err)
}

// Stop ends its commands; what it changed stays. Errors: ErrNotRunning.
func (s *Sandbox) Stop(ctx context.Context) error {
	_, err := s.c.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: s.ID})
	return fail(ctx, "stop sandbox", err)
}

// Destroy ends and removes it, with every change that was not applied.
func (s *Sandbox) Destroy(ctx context.Context) error {
	_, err := s.c.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: s.ID})
	return fail(ctx, "destroy sandbox", err)
}

// SetRules replaces the policy; a running sandbox sees it at once.
func (s *Sandbox) SetRules(ctx context.Context, rules []Rule) error {
	sent, err := rulesOf("set policy", rules)
	if err != nil {
		return err
	}
	_, err = s.c.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: s.ID, Permissions: sent})
	return fail(ctx, "set policy", err)
}

// Explanation is what the policy says of a path.
type Explanation struct {
	Permission  Permission
	Reason      string
	Traversable bool // hidden, but something below is not
}

// Explain says what a path is to the sandbox, and why.
func (s *Sandbox) Explain(ctx context.Context, path string) (Explanation, error) {
	got, err := s.c.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: s.ID, Path: path})
	if err != nil {
		return Explanation{}, fail(ctx, "explain "+path, err)
	}
	return Explanation{permissionFrom(got.Permission), got.Reason, got.Traversable}, nil
}
