package service

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/supervise"
	"github.com/agentfense/agentfense/internal/vpath"
)

// SetPolicy replaces the rules of a sandbox. It returns when nothing is
// answered by the old ones any more.
func (c *sandboxServer) SetPolicy(ctx context.Context, r *sandboxv1.SetPolicyRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	rules, sent, err := rulesOf(r.Permissions)
	if err != nil {
		return nil, err
	}
	// Not while it starts: the supervisor reads the record once.
	defer s.lives.lock(r.SandboxId)()
	sb, err := s.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	err = sb.ReplaceRules(rules, sentNote, "asked of the server by "+vpath.Escape(callerOf(ctx).Name), func(r *sandbox.Record) { r.Served.Sent = sent })
	if err != nil {
		return nil, err
	}
	client, err := supervise.Dial(ctx, sb.Dir())
	if err == nil {
		err = client.SetPolicy(context.WithoutCancel(ctx), rules)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	return s.describe(ctx, sb)
}

// ExplainPolicy says what a path is to a sandbox, and by which rule.
func (c *sandboxServer) ExplainPolicy(ctx context.Context, r *sandboxv1.ExplainPolicyRequest) (*sandboxv1.ExplainPolicyResponse, error) {
	sb, err := c.service.sandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	p, err := parsePath("path", r.Path)
	if err != nil {
		return nil, err
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
	d := compiled.Decide(p)
	answer := &sandboxv1.ExplainPolicyResponse{Permission: wirePermission[d.Permission], RuleIndex: -1, Reason: d.Reason}
	if d.Rule >= 0 && d.Rule < len(record.Served.Sent) {
		answer.RuleIndex = int32(d.Rule)
		answer.Rule = wireRule(record.Served.Sent[d.Rule])
	}
	return answer, nil
}

// wirePermission is permissionOf in reverse.
var wirePermission = map[policy.Permission]sandboxv1.Permission{
	policy.None:  sandboxv1.Permission_PERMISSION_NONE,
	policy.View:  sandboxv1.Permission_PERMISSION_VIEW,
	policy.Read:  sandboxv1.Permission_PERMISSION_READ,
	policy.Write: sandboxv1.Permission_PERMISSION_WRITE,
}

// wireRule is a rule as it was sent.
func wireRule(r sandbox.SentRule) *sandboxv1.PermissionRule {
	return &sandboxv1.PermissionRule{
		Pattern: r.Pattern, Type: sandboxv1.PatternType(r.Type), Permission: sandboxv1.Permission(r.Permission), Priority: r.Priority,
	}
}
