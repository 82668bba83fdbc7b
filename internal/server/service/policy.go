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
	sb, unlock, err := s.locked(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkRuleRoom(sb.Record(), rules); err != nil {
		return nil, err
	}
	err = sb.ReplaceRules(rules, policy.Attribute(rules, sentNote), "asked of the server by "+vpath.Escape(callerOf(ctx).Name), func(r *sandbox.Record) { r.Served.Sent = sent })
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
	return explained(compiled.Explain(p), record.Served.Sent), nil
}

// explained is an explanation on the wire, whose rules are those that were
// sent.
func explained(x policy.Explanation, sent []sandbox.SentRule) *sandboxv1.ExplainPolicyResponse {
	index := func(rule int) int32 {
		if rule < 0 || rule >= len(sent) {
			return -1
		}
		return int32(rule)
	}
	d := x.Decision
	answer := &sandboxv1.ExplainPolicyResponse{
		Permission: wirePermission[d.Permission], RuleIndex: index(d.Rule), Reason: d.Reason,
		Traversable: d.Traversable, Ancestor: x.Ancestor.Text(),
	}
	if i := answer.RuleIndex; i >= 0 {
		answer.Rule = wireRule(sent[i])
	}
	if below := index(x.Below); below >= 0 {
		answer.BelowIndex = &below
	}
	for _, m := range x.Matches {
		answer.Matches = append(answer.Matches, &sandboxv1.RuleMatch{RuleIndex: index(m.Rule), Why: m.Why})
	}
	return answer
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
		Origin: sandboxv1.RuleOrigin(r.Origin), Own: r.Own,
	}
}
