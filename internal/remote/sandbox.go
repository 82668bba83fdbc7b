package remote

import (
	"cmp"
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/carry"
	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/ident"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

var (
	statusOf = map[sandboxv1.SandboxStatus]control.Status{
		sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING: control.Pending,
		sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING: control.Running,
		sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED: control.Stopped,
		sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR:   control.Failed,
	}
	runtimeOf = map[sandboxv1.RuntimeType]string{
		sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP:  sandbox.RuntimeBwrap,
		sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER: sandbox.RuntimeDocker,
	}
	wireSync = map[config.Sync]sandboxv1.SyncMode{
		config.SyncOnExec: sandboxv1.SyncMode_SYNC_MODE_ON_EXEC,
		config.SyncOnStop: sandboxv1.SyncMode_SYNC_MODE_ON_STOP,
		config.SyncManual: sandboxv1.SyncMode_SYNC_MODE_MANUAL,
	}
	syncOf = map[sandboxv1.SyncMode]config.Sync{
		sandboxv1.SyncMode_SYNC_MODE_ON_EXEC: config.SyncOnExec,
		sandboxv1.SyncMode_SYNC_MODE_ON_STOP: config.SyncOnStop,
		sandboxv1.SyncMode_SYNC_MODE_MANUAL:  config.SyncManual,
	}
	wireRuntime = map[string]sandboxv1.RuntimeType{
		"":                    sandboxv1.RuntimeType_RUNTIME_TYPE_UNSPECIFIED,
		sandbox.RuntimeBwrap:  sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP,
		sandbox.RuntimeDocker: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER,
	}
)

// workspace is where a server's sandboxes have their codebase, unless it says otherwise.
const workspace = "/workspace"

// cpuPeriod is what cpu_quota counts against.
const cpuPeriod = 100 * time.Millisecond

// sandboxOf describes a sandbox. Its ids and names have been escaped: those of a
// server of ours are plain, those of another could steer a terminal.
func sandboxOf(s *sandboxv1.Sandbox) (control.Sandbox, error) {
	rules, err := rulesOf(s.Permissions)
	if err != nil {
		return control.Sandbox{}, err
	}
	note := policy.Attribute(rules, sentNote)
	return control.Sandbox{
		Status: statusOf[s.Status],
		Record: sandbox.Record{
			SchemaVersion: sandbox.SchemaVersion, ID: sandbox.ID(vpath.Escape(s.Id)), Name: vpath.Escape(s.Name), Workspace: cmp.Or(vpath.DecodeText(s.Workspace), workspace),
			Rules: rules, PolicyNote: note, Runtime: runtimeOf[s.Runtime], Image: vpath.Escape(s.Image),
			Limits: limitsOf(s.Resources), CreatedAt: timeOf(s.CreatedAt),
			Served: &sandbox.Served{
				CodebaseID: vpath.Escape(s.CodebaseId), OwnerID: s.OwnerId, Labels: s.Labels, Sync: syncOf[s.Sync], ExpiresAt: timeOf(s.ExpiresAt),
				Running:   s.Status == sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING,
				StartedAt: timeOf(s.StartedAt), StoppedAt: timeOf(s.StoppedAt), Failure: s.StatusReason,
			},
		},
	}, nil
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func limitsOf(r *sandboxv1.ResourceLimits) sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: r.GetMemoryBytes(), CPUs: float64(r.GetCpuQuota()) / float64(cpuPeriod.Microseconds()),
		PIDs: r.GetPidsLimit(), DiskBytes: r.GetDiskBytes(), DiskInodes: r.GetDiskInodes(),
	}
}

func wireLimits(l sandbox.Limits) *sandboxv1.ResourceLimits {
	return &sandboxv1.ResourceLimits{
		MemoryBytes: l.MemoryBytes, CpuQuota: int64(math.Round(l.CPUs * float64(cpuPeriod.Microseconds()))),
		PidsLimit: l.PIDs, DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes,
	}
}

// Sandboxes lists the sandboxes that may be seen, the oldest first.
func (c *Client) Sandboxes(ctx context.Context) ([]control.Sandbox, error) {
	return c.list(ctx, &sandboxv1.ListSandboxesRequest{})
}

func (c *Client) list(ctx context.Context, r *sandboxv1.ListSandboxesRequest) ([]control.Sandbox, error) {
	var all []control.Sandbox
	for {
		page, err := c.sandboxes.ListSandboxes(ctx, r)
		if err != nil {
			return nil, c.failed(err)
		}
		for _, s := range page.Sandboxes {
			found, err := sandboxOf(s)
			if err != nil {
				return nil, err
			}
			all = append(all, found)
		}
		if r.PageToken, err = carry.NextPage(r.PageToken, page.NextPageToken); err != nil || r.PageToken == "" {
			return all, err
		}
	}
}

// Sandbox finds a sandbox by its name or id. Errors: NotFound.
func (c *Client) Sandbox(ctx context.Context, name string) (control.Sandbox, error) {
	if ident.Sandbox(name).IsValid() {
		found, err := c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: name})
		if err != nil {
			return control.Sandbox{}, c.failed(err)
		}
		return sandboxOf(found)
	}
	found, err := c.list(ctx, &sandboxv1.ListSandboxesRequest{Name: name})
	if err != nil {
		return control.Sandbox{}, err
	}
	for _, s := range found { // a server that does not know the field lists all
		if s.Record.Name == name {
			return s, nil
		}
	}
	return control.Sandbox{}, fault.New(fault.NotFound, "sandbox %s: no such sandbox at %s", vpath.Escape(name), c.at)
}

// Create makes a sandbox. It does not start it.
func (c *Client) Create(ctx context.Context, n control.NewSandbox) (control.Sandbox, error) {
	rules, err := wireRules(n.Rules)
	if err != nil {
		return control.Sandbox{}, err
	}
	made, err := c.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		CodebaseId: n.CodebaseID, Permissions: rules, Runtime: wireRuntime[n.Runtime], Image: n.Image,
		Resources: wireLimits(n.Limits), Name: n.Name, User: n.User, Sync: wireSync[n.Sync],
		GitUser: &sandboxv1.GitUser{Name: n.Git.Name, Email: n.Git.Email},
	})
	if err != nil {
		return control.Sandbox{}, c.failed(err)
	}
	return sandboxOf(made)
}

// Start starts a sandbox. Errors: Precondition if it runs.
func (c *Client) Start(ctx context.Context, id string) error {
	_, err := c.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: id})
	return c.failed(err)
}

// Stop ends everything that runs in a sandbox. Errors: Precondition if it does
// not run.
func (c *Client) Stop(ctx context.Context, id string) error {
	_, err := c.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: id})
	return c.failed(err)
}

// Destroy ends and removes a sandbox.
func (c *Client) Destroy(ctx context.Context, id string) error {
	_, err := c.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id})
	return c.failed(err)
}

// DestroyUnused is Destroy of a sandbox with which nothing is lost. Errors:
// Precondition where it holds changes or something runs in it.
func (c *Client) DestroyUnused(ctx context.Context, id string) error {
	_, err := c.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id, UnusedOnly: true})
	return c.failed(err)
}

// InUse reports whether a command or a session runs in a sandbox.
func (c *Client) InUse(ctx context.Context, id string) (bool, error) {
	s, err := c.sandboxes.GetStats(ctx, &sandboxv1.GetStatsRequest{SandboxId: id})
	if err != nil {
		return false, c.failed(err)
	}
	return s.Execs > 0 || s.Sessions > 0, nil
}
