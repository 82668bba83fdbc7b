package client

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// Permission is what a path is to a sandbox.
type Permission string

// The permissions, from the strictest.
const (
	None  Permission = "none"  // it does not exist
	View  Permission = "view"  // it is listed, its content refused
	Read  Permission = "read"  // its content can be read
	Write Permission = "write" // it can be changed
)

// PatternType says how a rule's pattern is read.
type PatternType string

// The pattern types. The empty one is Glob.
const (
	Glob      PatternType = "glob"
	Directory PatternType = "directory" // and all below it
	File      PatternType = "file"      // exactly one path
	Auto      PatternType = "auto"      // told from the pattern's text, as in a policy file
)

// PermissionRule gives the paths of a pattern a permission (docs/policy.md). The higher
// priority wins.
type PermissionRule struct {
	Pattern    string
	Permission Permission
	Type       PatternType
	Priority   int32
	Origin     RuleOrigin
	// Strict, of a rule of None, refuses whatever is made where the rule hides what the
	// source has. Without it a program may make entries of its own there, which are
	// never applied.
	Strict bool
}

// RuleOrigin is who made a rule. A flag of the command line ranks in its own way,
// so a rule that a sandbox has is sent back with it.
type RuleOrigin string

// The origins.
const (
	OriginRule RuleOrigin = ""     // a policy file, a preset or a program
	OriginFlag RuleOrigin = "flag" // --write, --read or --view
	OriginHide RuleOrigin = "hide" // --hide; the permission is None
)

// DefaultPreset is used where neither a preset nor rules are given.
const DefaultPreset = preset.Default

// Presets returns the names of the presets, sorted.
func Presets() []string { return preset.Names() }

// Preset returns the rules of a preset. Errors: ErrInvalid, with the nearest
// name.
func Preset(name string) ([]PermissionRule, error) {
	found, err := preset.Rules(name)
	if err != nil {
		return nil, invalid("preset", err)
	}
	rules := make([]PermissionRule, len(found))
	for i, r := range found {
		rules[i] = PermissionRule{Pattern: r.Pattern, Permission: Permission(r.Permission.String()), Type: Glob, Priority: r.Priority, Strict: r.Permission == policy.None && !r.Own}
	}
	return rules, nil
}

// rulesOf are the rules as they are sent. An unknown word is an error here: on
// the wire it would be the zero value.
func rulesOf(operation string, rules []PermissionRule) ([]*sandboxv1.PermissionRule, error) {
	sent := make([]*sandboxv1.PermissionRule, len(rules))
	for i, r := range rules {
		permission, ok := value[sandboxv1.Permission]("PERMISSION_", string(r.Permission), sandboxv1.Permission_value)
		if !ok || r.Permission == "" {
			return nil, failure(operation, "rule "+r.Pattern+`: unknown permission "`+string(r.Permission)+`"`, ErrInvalid)
		}
		kind, ok := value[sandboxv1.PatternType]("PATTERN_TYPE_", first(string(r.Type), string(Glob)), sandboxv1.PatternType_value)
		if !ok {
			return nil, failure(operation, "rule "+r.Pattern+`: unknown pattern type "`+string(r.Type)+`"`, ErrInvalid)
		}
		origin, ok := value[sandboxv1.RuleOrigin]("RULE_ORIGIN_", string(r.Origin), sandboxv1.RuleOrigin_value)
		if !ok {
			return nil, failure(operation, "rule "+r.Pattern+`: unknown origin "`+string(r.Origin)+`"`, ErrInvalid)
		}
		sent[i] = &sandboxv1.PermissionRule{Pattern: r.Pattern, Permission: permission, Type: kind, Priority: r.Priority, Origin: origin, Own: r.Permission == None && !r.Strict}
	}
	return sent, nil
}

func rulesFrom(sent []*sandboxv1.PermissionRule) []PermissionRule {
	rules := make([]PermissionRule, len(sent))
	for i, r := range sent {
		rules[i] = PermissionRule{
			Pattern: r.Pattern, Permission: permissionFrom(r.Permission), Type: PatternType(first(knownWord("PATTERN_TYPE_", r.Type), string(Glob))), Priority: r.Priority,
			Origin: RuleOrigin(word("RULE_ORIGIN_", r.Origin)),
		}
		rules[i].Strict = rules[i].Permission == None && !r.Own
	}
	return rules
}

func permissionFrom(p sandboxv1.Permission) Permission {
	return Permission(first(knownWord("PERMISSION_", p), string(None)))
}

// Explanation is what the policy says of a path.
type Explanation struct {
	Permission  Permission
	Reason      string
	Rule        *PermissionRule // that decides; nil where none does
	RuleIndex   int             // of it among the sandbox's rules; -1 where none decides
	Traversable bool            // hidden, but something below is not
	Ancestor    string          // the directory with which the path is hidden, else ""
	Matches     []RuleMatch
}

// RuleMatch is a rule that matches a path.
type RuleMatch struct {
	RuleIndex int    // among the sandbox's rules; -1 for one that is not theirs
	Why       string // it wins, or does not
}

// Explain says what a path is to the sandbox, and why. The matches are in the
// order in which they win.
func (s *Sandbox) Explain(ctx context.Context, path string) (Explanation, error) {
	got, err := s.c.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: s.ID, Path: inside(path)})
	if err != nil {
		return Explanation{}, s.c.fail(ctx, "explain "+path, err)
	}
	x := Explanation{
		Permission: permissionFrom(got.Permission), Reason: got.Reason, RuleIndex: int(got.RuleIndex), Traversable: got.Traversable,
		Ancestor: vpath.DecodeText(got.Ancestor),
	}
	if got.Rule != nil {
		x.Rule = &rulesFrom([]*sandboxv1.PermissionRule{got.Rule})[0]
	}
	for _, m := range got.Matches {
		x.Matches = append(x.Matches, RuleMatch{int(m.RuleIndex), m.Why})
	}
	return x, nil
}
