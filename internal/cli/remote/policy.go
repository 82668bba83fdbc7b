package remote

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// SetPolicy replaces the rules of a sandbox, of a running one at once.
func (c *Client) SetPolicy(ctx context.Context, id string, rules []policy.Rule) error {
	sent, err := wireconv.EncodeRules(rules)
	if err != nil {
		return err
	}
	_, err = c.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: id, Permissions: sent})
	return c.failed(err)
}

// ChangeHosts grants and revokes hosts of a sandbox, of a running one at once.
func (c *Client) ChangeHosts(ctx context.Context, id string, change hostlist.Change) (backend.Sandbox, error) {
	m, err := c.sandboxes.ChangeHosts(ctx, wireconv.EncodeChangeHosts(id, change))
	if err != nil {
		return backend.Sandbox{}, c.failed(err)
	}
	return sandboxOf(m)
}

// Explain says what a path in a mount is to a sandbox; "" is the workspace. rules is the number of
// rules there.
func (c *Client) Explain(ctx context.Context, s backend.Sandbox, mount string, path vpath.Path, rules int) (policy.Explanation, error) {
	x, err := c.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: string(s.Record.ID), Mount: mount, Path: path.Text()})
	if err != nil {
		return policy.Explanation{}, c.failed(err)
	}
	return wireconv.DecodeExplanation(x, path, rules)
}
