package wireconv

import (
	"fmt"
	"unicode/utf8"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// EncodeRules encodes rules of a workspace. Errors: Invalid for a pattern or path that is not
// UTF-8, and for a rule that keeps, which a server knows in mounts only.
func EncodeRules(rules []policy.Rule) ([]*sandboxv1.PermissionRule, error) {
	for _, r := range rules {
		if err := checkKeep(r); err != nil {
			return nil, err
		}
	}
	return EncodeMountRules(rules)
}

// checkKeep refuses a rule of a workspace that keeps. Errors: Invalid.
func checkKeep(r policy.Rule) error {
	if !r.Keep {
		return nil
	}
	return errdefs.New(errdefs.Invalid, "%s: pattern %s: apply: keep works in the mounts of a server's sandbox, not in its workspace: leave it out, and apply the changes", r.Source, vpath.Quote(r.Pattern))
}

// EncodeMountRules encodes rules of a mount. Errors: Invalid for a pattern or path that is not
// UTF-8.
func EncodeMountRules(rules []policy.Rule) ([]*sandboxv1.PermissionRule, error) {
	for _, r := range rules {
		if !utf8.ValidString(r.Pattern) {
			return nil, errdefs.New(errdefs.Invalid, "%s: pattern %s: a server accepts only UTF-8", r.Source, vpath.Quote(r.Pattern))
		}
		if !utf8.ValidString(r.Transform.Substitute) {
			return nil, errdefs.New(errdefs.Invalid, "%s: %s: a server accepts only UTF-8", r.Source, r.Transform)
		}
	}
	return encodeRules(rules), nil
}

// encodeRules encodes rules with patterns in UTF-8.
func encodeRules(rules []policy.Rule) []*sandboxv1.PermissionRule {
	out := make([]*sandboxv1.PermissionRule, len(rules))
	for i, r := range rules {
		out[i] = &sandboxv1.PermissionRule{
			Pattern: r.Pattern, Type: PatternType.Encode(r.Type), Permission: Permission.Encode(r.Permission), Priority: r.Priority,
			Origin: RuleOrigin.Encode(r.Origin), Own: r.Own, Redact: RedactFormat.Encode(r.Transform.Redact), Substitute: r.Transform.Substitute,
			Keep: r.Keep, KeepKeys: r.Keys.List(),
		}
	}
	return out
}

// DecodeRules returns the meaning of the rules that a request sends for a workspace; source is
// where they are from. Errors: Invalid for an unknown value, and for a rule that keeps.
func DecodeRules(sent []*sandboxv1.PermissionRule, source string) ([]policy.Rule, error) {
	rules, err := decodeRulesOf("permissions", sent, source)
	for i, r := range rules {
		if err := checkKeep(r); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "permissions[%d].keep: %w", i, err)
		}
	}
	return rules, err
}

// decodeRulesOf returns the meaning of the rules of a field, also of those that keep.
func decodeRulesOf(list string, sent []*sandboxv1.PermissionRule, source string) ([]policy.Rule, error) {
	rules := make([]policy.Rule, 0, len(sent))
	for i, r := range sent {
		field := func(name string) string { return fmt.Sprintf("%s[%d].%s", list, i, name) }
		permission, err := Permission.Parse(field("permission"), r.GetPermission())
		if err != nil {
			return nil, err
		}
		kind, err := PatternType.Parse(field("type"), r.GetType())
		if err != nil {
			return nil, err
		}
		origin, err := RuleOrigin.Parse(field("origin"), r.GetOrigin())
		if err != nil {
			return nil, err
		}
		redact, err := RedactFormat.Parse(field("redact"), r.GetRedact())
		if err != nil {
			return nil, err
		}
		keys, err := jsonkeys.NewList(r.GetKeepKeys())
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "%s: %w", field("keep_keys"), err)
		}
		rules = append(rules, policy.Rule{
			Pattern: r.GetPattern(), Permission: permission, Type: kind, Priority: r.GetPriority(), Origin: origin, Source: source,
			Own: r.GetOwn() && permission == policy.None, Transform: policy.Transform{Redact: redact, Substitute: r.GetSubstitute()},
			Keep: r.GetKeep(), Keys: keys,
		})
	}
	return rules, nil
}

// encodeSent returns rules as a client sent them.
func encodeSent(rules []record.SentRule) []*sandboxv1.PermissionRule {
	var out []*sandboxv1.PermissionRule
	for _, r := range rules {
		out = append(out, &sandboxv1.PermissionRule{
			Pattern: r.Pattern, Type: sandboxv1.PatternType(r.Type), Permission: sandboxv1.Permission(r.Permission), Priority: r.Priority,
			Origin: sandboxv1.RuleOrigin(r.Origin), Own: r.Own, Redact: sandboxv1.RedactFormat(r.Redact), Substitute: r.Substitute,
			Keep: r.Keep, KeepKeys: r.KeepKeys,
		})
	}
	return out
}

// DecodeSent returns rules as they were sent, for a record.
func DecodeSent(sent []*sandboxv1.PermissionRule) []record.SentRule {
	var rules []record.SentRule
	for _, r := range sent {
		rules = append(rules, record.SentRule{
			Pattern: r.GetPattern(), Type: int32(r.GetType()), Permission: int32(r.GetPermission()), Priority: r.GetPriority(),
			Origin: int32(r.GetOrigin()), Own: r.GetOwn(), Redact: int32(r.GetRedact()), Substitute: r.GetSubstitute(),
			Keep: r.GetKeep(), KeepKeys: r.GetKeepKeys(),
		})
	}
	return rules
}

// AsSent returns rules as a client sends them, those of a mount.
func AsSent(rules []policy.Rule) []record.SentRule { return DecodeSent(encodeRules(rules)) }

// EncodeExplanation returns an explanation, whose rules are those that were sent.
func EncodeExplanation(x policy.Explanation, sent []record.SentRule) *sandboxv1.ExplainPolicyResponse {
	index := func(rule int) int32 { return int32(indexAmong(rule, len(sent))) }
	d := x.Decision
	answer := &sandboxv1.ExplainPolicyResponse{
		Permission: Permission.Encode(d.Permission), RuleIndex: index(d.Rule), Reason: d.Reason,
		Traversable: d.Traversable, Ancestor: x.Ancestor.Text(),
	}
	if i := answer.RuleIndex; i >= 0 {
		answer.Rule = encodeSent(sent[i : i+1])[0]
	}
	if below := index(x.Below); below >= 0 {
		answer.BelowIndex = &below
	}
	for _, m := range x.Matches {
		answer.Matches = append(answer.Matches, &sandboxv1.RuleMatch{RuleIndex: index(m.Rule), Why: m.Why})
	}
	return answer
}

// DecodeExplanation returns a server's explanation of a path, for a sandbox with this number of
// rules. Errors: Internal for an invalid path.
func DecodeExplanation(m *sandboxv1.ExplainPolicyResponse, path vpath.Path, rules int) (policy.Explanation, error) {
	index := func(i int32) int { return indexAmong(int(i), rules) }
	x := policy.Explanation{
		Path: path, Inherited: policy.NoRule, Below: policy.NoRule,
		Decision: policy.Decision{
			Permission: Permission.Decode(m.Permission), Rule: index(m.RuleIndex), Reason: m.Reason, Traversable: m.Traversable,
			Transform: policy.Transform{Redact: RedactFormat.Decode(m.GetRule().GetRedact()), Substitute: m.GetRule().GetSubstitute()},
		},
	}
	if m.Ancestor != "" {
		var err error
		if x.Ancestor, err = decodePath(m.Ancestor); err != nil {
			return x, err
		}
	}
	if m.BelowIndex != nil {
		x.Below = index(*m.BelowIndex)
	}
	for _, match := range m.Matches {
		if rule := index(match.RuleIndex); rule != policy.NoRule {
			x.Matches = append(x.Matches, policy.Match{Rule: rule, Why: match.Why})
		}
	}
	return x, nil
}

// indexAmong returns the index of a rule among count rules, NoRule if it is not one of them.
func indexAmong(rule, count int) int {
	if rule < 0 || rule >= count {
		return policy.NoRule
	}
	return rule
}
