package service

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// SetPolicy replaces the rules of a sandbox. When it returns, the old ones decide nothing any more.
func (c *sandboxServer) SetPolicy(ctx context.Context, m *sandboxv1.SetPolicyRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	r, err := wireconv.DecodeSetPolicy(m)
	if err != nil {
		return nil, err
	}
	rules := r.Rules.Policy
	if err := checkRules(rules); err != nil {
		return nil, err
	}
	// Not while it starts: the supervisor reads the record once.
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkRuleRoom(sb.Record(), rules); err != nil {
		return nil, err
	}
	err = sb.ReplaceRules(rules, preset.Attribute(rules, wireconv.SentNote), "asked of the server by "+vpath.Escape(callerOf(ctx).Name), func(rec *record.Record) { rec.Served.Sent = r.Rules.Sent })
	if err != nil {
		return nil, err
	}
	return s.changed(ctx, sb, func(ctx context.Context, c *api.Client) error { return c.SetPolicy(ctx, rules) })
}

// changed tells the supervisor of a sandbox of a change, if it runs, and describes the sandbox.
// What it tells is not interrupted.
func (s *Service) changed(ctx context.Context, sb *record.Sandbox, do func(context.Context, *api.Client) error) (*sandboxv1.Sandbox, error) {
	client, err := api.Dial(ctx, sb.Dir())
	if err == nil {
		err = do(context.WithoutCancel(ctx), client)
	}
	if err != nil && !errdefs.Is(err, errdefs.NotFound) {
		return nil, err
	}
	return s.describe(ctx, sb)
}

// ExplainPolicy returns the permission of a path, and the rule that decides it.
func (c *sandboxServer) ExplainPolicy(ctx context.Context, m *sandboxv1.ExplainPolicyRequest) (*sandboxv1.ExplainPolicyResponse, error) {
	r, err := wireconv.DecodeExplainPolicy(m)
	if err != nil {
		return nil, err
	}
	sb, err := c.service.sandboxToRead(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Mount != "" {
		return explainMount(sb, r)
	}
	record := sb.Record()
	reserved, err := c.service.home.Reserved(record.Source)
	if err != nil {
		return nil, err
	}
	compiled, err := policy.Compile(record.Rules, policy.Options{Reserved: reserved})
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeExplanation(compiled.Explain(r.Path), record.Served.Sent), nil
}

// explainMount is ExplainPolicy in a mount.
func explainMount(sb *record.Sandbox, r wireconv.MountPath) (*sandboxv1.ExplainPolicyResponse, error) {
	m, err := sb.MountNamed(r.Mount)
	if err != nil {
		return nil, err
	}
	view, err := readview.OpenIn(sb, m)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	return wireconv.EncodeExplanation(view.Explain(r.Path), wireconv.AsSent(m.Rules)), nil
}
