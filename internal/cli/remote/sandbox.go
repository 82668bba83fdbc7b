package remote

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

func sandboxOf(m *sandboxv1.Sandbox) (backend.Sandbox, error) {
	s, err := wireconv.DecodeSandbox(m)
	sb := backend.Sandbox{Record: s.Record, Status: s.Status, Usage: s.Usage, Variables: s.Variables, UnsavedBranches: s.UnsavedBranches}
	for _, secret := range s.Secrets {
		sb.Secrets = append(sb.Secrets, backend.ServerSecret(secret))
		sb.Record.Net = record.NetNamed
	}
	return sb, err
}

// Sandboxes lists the sandboxes that may be seen, the oldest first. With usage it has
// what each holds, unless the server is too old to tell.
func (c *Client) Sandboxes(ctx context.Context, usage bool) ([]backend.Sandbox, error) {
	all, err := c.list(ctx, &sandboxv1.ListSandboxesRequest{WithUsage: usage})
	if usage && errdefs.Is(err, errdefs.Unsupported) {
		return c.list(ctx, &sandboxv1.ListSandboxesRequest{})
	}
	return all, err
}

func (c *Client) list(ctx context.Context, r *sandboxv1.ListSandboxesRequest) ([]backend.Sandbox, error) {
	var all []backend.Sandbox
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
		if r.PageToken, err = stream.NextPage(r.PageToken, page.NextPageToken); err != nil || r.PageToken == "" {
			return all, err
		}
	}
}

// Sandbox finds a sandbox by its name or id. Errors: NotFound.
func (c *Client) Sandbox(ctx context.Context, name string) (backend.Sandbox, error) {
	if id.Sandbox(name).IsValid() {
		found, err := c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: name})
		if err != nil {
			return backend.Sandbox{}, c.failed(err)
		}
		return sandboxOf(found)
	}
	found, err := c.list(ctx, &sandboxv1.ListSandboxesRequest{Name: name})
	if err != nil {
		return backend.Sandbox{}, err
	}
	for _, s := range found { // a server that does not know the field lists all
		if s.Record.Name == name {
			return s, nil
		}
	}
	return backend.Sandbox{}, errdefs.WithReason(errdefs.New(errdefs.NotFound, "sandbox %s: no such sandbox at %s", vpath.Escape(name), c.at), errdefs.SandboxNotFound)
}

// create makes a sandbox of a codebase.
func (c *Client) create(ctx context.Context, n backend.NewSandbox, sync config.Sync, git gitconfig.User) (backend.Sandbox, error) {
	rules, err := wireconv.EncodeRules(n.Rules.Rules)
	if err != nil {
		return backend.Sandbox{}, err
	}
	mounts, err := mountsOf(n)
	if err != nil {
		return backend.Sandbox{}, err
	}
	n.Limits.Timeout = 0 // the command has it
	made, err := c.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		CodebaseId: n.CodebaseID, Permissions: rules, Runtime: wireconv.Runtime.Encode(n.Runtime), Image: n.Image,
		Resources: wireconv.EncodeLimits(n.Limits), Name: n.Name, User: n.User, Home: n.Home, Sync: wireconv.Sync.Encode(sync),
		GitUser: wireconv.EncodeGit(git), Env: given(n.Env), AllowNet: n.AllowNet, NetLimits: wireconv.EncodeNetLimits(n.NetLimits),
		Mounts: mounts, Scratch: scratchOf(n.Scratch), Secrets: n.ServerSecrets, Publish: (&published.Ports{Publish: n.Publish}).Texts(), AskTimeout: wireconv.EncodeAskTimeout(n.Ask), Board: n.Board,
		Git: string(n.Git),
	})
	if err != nil {
		return backend.Sandbox{}, c.failed(err)
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
