package client

import (
	"context"
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// Permission is what a sandbox may do with a path.
type Permission string

// The permissions, from the strictest.
const (
	None  Permission = "none"  // the path does not exist
	View  Permission = "view"  // the path is listed, but its content cannot be read
	Read  Permission = "read"  // the content can be read
	Write Permission = "write" // the path can be changed
)

// PatternType says how to interpret a rule's pattern.
type PatternType string

// The pattern types. The empty one is Glob.
const (
	Glob      PatternType = "glob"
	Directory PatternType = "directory" // and everything below it
	File      PatternType = "file"      // exactly one path
	Auto      PatternType = "auto"      // derived from the pattern's text, as in a policy file
)

// PermissionRule sets the permission of the paths that match a pattern (docs/policy.md). The higher
// priority wins.
type PermissionRule struct {
	Pattern    string
	Permission Permission
	Type       PatternType
	Priority   int32
	Origin     RuleOrigin
	// Strict, with None: nothing can be created at the paths that the rule hides. Otherwise a
	// program may create its own entries there, which are never applied.
	Strict bool
	// Redact, with Read: the files show their keys, and masks instead of their values. The other
	// words than RedactNothing are those of a policy file: "env", "json", "yaml", "toml".
	Redact RedactFormat
	// Substitute, with Read: the files show the content of this one. A name without a slash is a
	// file beside the one that the rule matches; any other path begins at the root of the workspace
	// or mount.
	Substitute string
	// Keep, with Write in a mount: when a command has ended, the regular files that it changed are
	// applied without a review, below a root that the server's configuration marks with keep.
	// Marked paths, executables and links always wait.
	Keep bool
	// KeepKeys, with Keep: of JSON files only these keys are applied, one a line.
	KeepKeys string
}

// RedactFormat is the format of a masked file, which shows its keys but not its values.
type RedactFormat string

// The formats.
const (
	RedactNothing RedactFormat = ""
	RedactEnv     RedactFormat = "env" // lines of the form NAME=value
	RedactJSON    RedactFormat = "json"
	RedactYAML    RedactFormat = "yaml"
	RedactTOML    RedactFormat = "toml"
)

// RuleOrigin is where a rule is from. It affects the rule's rank (docs/policy.md).
type RuleOrigin string

// The origins.
const (
	OriginRule RuleOrigin = ""     // a policy file, a preset or a program
	OriginFlag RuleOrigin = "flag" // --write, --read or --view
	OriginHide RuleOrigin = "hide" // --hide; the permission is None
)

// DefaultPreset is the preset without WithPreset and WithPolicy.
const DefaultPreset = preset.Default

// Presets returns the names of the presets, sorted.
func Presets() []string { return preset.Names() }

// Preset returns the rules of a preset. Errors: ErrInvalid, with the most similar name.
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

// rulesOf converts rules to messages. It refuses an unknown word, because the message would have
// the zero value.
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
		redact, ok := value[sandboxv1.RedactFormat]("REDACT_FORMAT_", string(r.Redact), sandboxv1.RedactFormat_value)
		if !ok {
			return nil, failure(operation, "rule "+r.Pattern+`: unknown format "`+string(r.Redact)+`"`, ErrInvalid)
		}
		sent[i] = &sandboxv1.PermissionRule{
			Pattern: r.Pattern, Permission: permission, Type: kind, Priority: r.Priority, Origin: origin, Own: r.Permission == None && !r.Strict,
			Redact: redact, Substitute: r.Substitute, Keep: r.Keep, KeepKeys: jsonkeys.List(r.KeepKeys).List(),
		}
	}
	return sent, nil
}

func rulesFrom(sent []*sandboxv1.PermissionRule) []PermissionRule {
	rules := make([]PermissionRule, len(sent))
	for i, r := range sent {
		rules[i] = PermissionRule{
			Pattern: r.Pattern, Permission: permissionFrom(r.Permission), Type: PatternType(first(knownWord("PATTERN_TYPE_", r.Type), string(Glob))), Priority: r.Priority,
			Origin: RuleOrigin(word("RULE_ORIGIN_", r.Origin)), Redact: RedactFormat(word("REDACT_FORMAT_", r.Redact)), Substitute: r.Substitute,
			Keep: r.Keep, KeepKeys: strings.Join(r.KeepKeys, "\n"),
		}
		rules[i].Strict = rules[i].Permission == None && !r.Own
	}
	return rules
}

func permissionFrom(p sandboxv1.Permission) Permission {
	return Permission(first(knownWord("PERMISSION_", p), string(None)))
}

// Explanation is the decision of the policy about a path.
type Explanation struct {
	Permission  Permission
	Reason      string
	Rule        *PermissionRule // the rule that decides; nil: no rule
	RuleIndex   int             // in the sandbox's rules; -1: no rule
	Traversable bool            // hidden, but something below it is visible
	Ancestor    string          // the parent directory that hides the path, else ""
	Matches     []RuleMatch
}

// RuleMatch is a rule that matches a path.
type RuleMatch struct {
	RuleIndex int    // in the sandbox's rules; -1 for another rule
	Why       string // it wins, or why it does not
}

// Explain returns the permission of a path and the rules that match it, by rank.
func (s *Sandbox) Explain(ctx context.Context, path string) (Explanation, error) {
	return s.Files.explain(ctx, path)
}

// Explain is Sandbox.Explain in the mount. The indexes of rules are those in the mount's rules; a
// mount of mode "ro" has none.
func (m *MountChanges) Explain(ctx context.Context, path string) (Explanation, error) {
	return m.Files.explain(ctx, path)
}

func (f SandboxFiles) explain(ctx context.Context, path string) (Explanation, error) {
	got, err := f.c.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: f.id, Mount: f.mount, Path: f.path(path)})
	if err != nil {
		return Explanation{}, f.c.fail(ctx, "explain "+path, err)
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
