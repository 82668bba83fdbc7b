package remote

import (
	"context"
	"unicode/utf8"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// sentNote says, for people, where the rules of a server's sandbox are from.
const sentNote = "sent to the server"

var (
	wirePermission = map[policy.Permission]sandboxv1.Permission{
		policy.None:  sandboxv1.Permission_PERMISSION_NONE,
		policy.View:  sandboxv1.Permission_PERMISSION_VIEW,
		policy.Read:  sandboxv1.Permission_PERMISSION_READ,
		policy.Write: sandboxv1.Permission_PERMISSION_WRITE,
	}
	wireType = map[policy.PatternType]sandboxv1.PatternType{
		policy.Auto:      sandboxv1.PatternType_PATTERN_TYPE_AUTO,
		policy.Glob:      sandboxv1.PatternType_PATTERN_TYPE_GLOB,
		policy.Directory: sandboxv1.PatternType_PATTERN_TYPE_DIRECTORY,
		policy.File:      sandboxv1.PatternType_PATTERN_TYPE_FILE,
	}
	wireOrigin = map[policy.Origin]sandboxv1.RuleOrigin{
		policy.OriginRule: sandboxv1.RuleOrigin_RULE_ORIGIN_UNSPECIFIED,
		policy.OriginFlag: sandboxv1.RuleOrigin_RULE_ORIGIN_FLAG,
		policy.OriginHide: sandboxv1.RuleOrigin_RULE_ORIGIN_HIDE,
	}
	permissionOf = inverted(wirePermission)
	typeOf       = inverted(wireType)
	originOf     = inverted(wireOrigin)
)

func inverted[K, V comparable](m map[K]V) map[V]K {
	out := make(map[V]K, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}

// wireRules are rules as they are sent. Errors: Invalid for a pattern that is no
// UTF-8, which the wire cannot carry.
func wireRules(rules []policy.Rule) ([]*sandboxv1.PermissionRule, error) {
	out := make([]*sandboxv1.PermissionRule, len(rules))
	for i, r := range rules {
		if !utf8.ValidString(r.Pattern) {
			return nil, fault.New(fault.Invalid, "%s: pattern %s: a server takes UTF-8 alone", r.Source, vpath.Quote(r.Pattern))
		}
		out[i] = &sandboxv1.PermissionRule{
			Pattern: r.Pattern, Type: wireType[r.Type], Permission: wirePermission[r.Permission], Priority: r.Priority,
			Origin: wireOrigin[r.Origin], Own: r.Own,
		}
	}
	return out, nil
}

// rulesOf are rules as the server has them. What was not specified is what the
// server takes it for. Errors: Unsupported for a value of a newer server.
func rulesOf(sent []*sandboxv1.PermissionRule) ([]policy.Rule, error) {
	rules := make([]policy.Rule, len(sent))
	for i, r := range sent {
		permission, known := permissionOf[r.Permission]
		kind, knownType := typeOf[r.Type]
		origin, knownOrigin := originOf[r.Origin]
		if r.Type == sandboxv1.PatternType_PATTERN_TYPE_UNSPECIFIED {
			kind, knownType = policy.Glob, true
		}
		if r.Permission != sandboxv1.Permission_PERMISSION_UNSPECIFIED && !known || !knownType || !knownOrigin {
			return nil, fault.New(fault.Unsupported, "rule %d of a sandbox has a value that this program does not know: the server is newer", i)
		}
		rules[i] = policy.Rule{Pattern: r.Pattern, Permission: permission, Type: kind, Priority: r.Priority, Origin: origin, Source: sentNote, Own: r.Own && permission == policy.None}
	}
	return rules, nil
}

// SetPolicy replaces the rules of a sandbox, of a running one at once.
func (c *Client) SetPolicy(ctx context.Context, id string, rules []policy.Rule) error {
	sent, err := wireRules(rules)
	if err != nil {
		return err
	}
	_, err = c.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: id, Permissions: sent})
	return c.failed(err)
}

// Explain says what a path is to a sandbox. Its rules are those of s.
func (c *Client) Explain(ctx context.Context, s control.Sandbox, path vpath.Path) (policy.Explanation, error) {
	x, err := c.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: string(s.Record.ID), Path: path.Text()})
	if err != nil {
		return policy.Explanation{}, c.failed(err)
	}
	index := func(i int32) int {
		if i < 0 || int(i) >= len(s.Record.Rules) {
			return policy.NoRule
		}
		return int(i)
	}
	out := policy.Explanation{
		Path: path, Inherited: policy.NoRule, Below: policy.NoRule,
		Decision: policy.Decision{
			Permission: permissionOf[x.Permission], Rule: index(x.RuleIndex), Reason: x.Reason, Traversable: x.Traversable,
		},
	}
	if x.Ancestor != "" {
		if out.Ancestor, err = parsePath(x.Ancestor); err != nil {
			return out, err
		}
	}
	if x.BelowIndex != nil {
		out.Below = index(*x.BelowIndex)
	}
	for _, m := range x.Matches {
		if rule := index(m.RuleIndex); rule != policy.NoRule {
			out.Matches = append(out.Matches, policy.Match{Rule: rule, Why: m.Why})
		}
	}
	return out, nil
}
