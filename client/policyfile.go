package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// Policy is an optional preset and more rules, as in a policy file of the command line. It is
// immutable: each method returns a new Policy.
type Policy struct {
	Preset string           // "": only Rules
	Rules  []PermissionRule // in addition to the preset's
}

// The priorities of the rules that the methods of Policy add.
const (
	GrantPriority = 20  // above what the presets grant, below what they hide
	HidePriority  = 100 // that of the presets' secrets
)

// Hide hides paths: they do not exist. Patterns are those of a policy file: "*.pem" and "secrets/"
// match at any depth, "/src/**" from the root.
func (p Policy) Hide(patterns ...string) Policy { return p.with(None, HidePriority, patterns) }

// View lets paths be listed, but not read.
func (p Policy) View(patterns ...string) Policy { return p.with(View, GrantPriority, patterns) }

// Read lets paths be read, but not changed.
func (p Policy) Read(patterns ...string) Policy { return p.with(Read, GrantPriority, patterns) }

// Write lets paths be changed.
func (p Policy) Write(patterns ...string) Policy { return p.with(Write, GrantPriority, patterns) }

// With adds rules.
func (p Policy) With(rules ...PermissionRule) Policy {
	return Policy{Preset: p.Preset, Rules: slices.Concat(p.Rules, rules)}
}

func (p Policy) with(permission Permission, priority int32, patterns []string) Policy {
	rules := make([]PermissionRule, len(patterns))
	for i, pattern := range patterns {
		rules[i] = PermissionRule{Pattern: pattern, Permission: permission, Type: Auto, Priority: priority}
	}
	return p.With(rules...)
}

// All returns the rules of a sandbox: those of the preset, then the others. Errors: ErrInvalid for
// an unknown preset.
func (p Policy) All() ([]PermissionRule, error) {
	if p.Preset == "" {
		return slices.Clone(p.Rules), nil
	}
	rules, err := Preset(p.Preset)
	if err != nil {
		return nil, err
	}
	return append(rules, p.Rules...), nil
}

// WithPolicy sets the rules of a sandbox to those of a policy, instead of WithPreset and
// WithPermissions. With an empty Policy nothing is visible.
func WithPolicy(p Policy) SandboxOption {
	return option(func(s *settings) { s.policy = &p })
}

// SetPolicy replaces the policy, also of a running sandbox, at once. Errors: ErrInvalid for an
// unknown preset and a malformed rule; the old policy then remains.
func (s *Sandbox) SetPolicy(ctx context.Context, p Policy) error {
	rules, err := p.All()
	if err != nil {
		return err
	}
	sent, err := rulesOf("set policy", rules)
	if err != nil {
		return err
	}
	_, err = s.c.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: s.ID, Permissions: sent})
	if err != nil {
		return s.c.fail(ctx, "set policy", err)
	}
	return s.setUploadRules(rules)
}

// ReadPolicy reads a policy file; errors call it name. It refuses everything that it does not know,
// hosts (network) and scratch directories, for which WithAllowNet and WithScratch are, and apply:
// keep.
// Errors: ErrInvalid, with name, line and the most similar valid word; those of r.
func ReadPolicy(r io.Reader, name string) (Policy, error) {
	file, err := policyfile.Load(r, name)
	if err != nil {
		if errdefs.Is(err, errdefs.Unavailable) {
			return Policy{}, failure("read policy", err.Error(), errors.Unwrap(err))
		}
		return Policy{}, invalid("read policy", err)
	}
	if err := checkWithoutServer(file); err != nil {
		return Policy{}, invalid("read policy", err)
	}
	p := Policy{Preset: file.Preset}
	for _, r := range file.Rules {
		p.Rules = append(p.Rules, PermissionRule{
			Pattern: r.Pattern, Permission: Permission(r.Permission.String()), Type: PatternType(r.Type.String()), Priority: r.Priority, Strict: r.Permission == policy.None && !r.Own,
			Redact: RedactFormat(r.Transform.Redact.String()), Substitute: r.Transform.Substitute,
		})
	}
	return p, nil
}

// checkWithoutServer refuses what a policy file says only to the command line.
func checkWithoutServer(file *policyfile.Document) error {
	if file.Network != nil {
		return file.Network.At(errors.New("a policy has no hosts: leave it out, and name them with WithAllowNet"))
	}
	if len(file.Scratch) > 0 {
		return file.Scratch[0].At(errors.New("a policy has no scratch directories: leave it out, and name them with WithScratch"))
	}
	if r, is := file.FirstKept(); is {
		return fmt.Errorf("%s: apply: keep: a policy keeps no state: leave it out, and set Keep in the rules of a mount", r.Source)
	}
	return nil
}

// WriteTo writes a policy file for ReadPolicy and the command line. Errors: ErrInvalid for a
// malformed rule; those of w.
func (p Policy) WriteTo(w io.Writer) (int64, error) {
	const operation = "write policy"
	file := policyfile.Document{Version: policyfile.Version, Preset: p.Preset}
	for _, r := range p.Rules {
		if r.Origin != OriginRule {
			return 0, invalid(operation, errors.New("rule "+r.Pattern+": a policy file cannot contain a rule of a command-line flag"))
		}
	}
	var err error
	if file.Rules, err = policyRules(operation, p.Rules); err != nil {
		return 0, err
	}
	count := counting{to: w}
	err = file.Write(&count)
	if ours := (*errdefs.Error)(nil); errors.As(err, &ours) {
		err = invalid(operation, err)
	}
	return count.n, err
}

// policyRules converts rules to those of package policy. Errors: ErrInvalid.
func policyRules(operation string, given []PermissionRule) ([]policy.Rule, error) {
	rules := make([]policy.Rule, len(given))
	for i, r := range given {
		permission, err := policy.ParsePermission(string(r.Permission))
		if err != nil {
			return nil, invalid(operation, err)
		}
		rule := policy.Rule{Pattern: r.Pattern, Permission: permission, Priority: r.Priority, Own: permission == policy.None && !r.Strict}
		rule.Transform.Substitute, rule.Keep = r.Substitute, r.Keep
		if rule.Keys, err = jsonkeys.NewList(jsonkeys.List(r.KeepKeys).List()); err != nil {
			return nil, invalid(operation, err)
		}
		if err := rule.Transform.Redact.UnmarshalText([]byte(r.Redact)); err != nil {
			return nil, invalid(operation, err)
		}
		if err := rule.Type.UnmarshalText([]byte(first(string(r.Type), string(Glob)))); err != nil {
			return nil, invalid(operation, err)
		}
		if err := rule.Origin.UnmarshalText([]byte(first(string(r.Origin), policy.OriginRule.String()))); err != nil {
			return nil, invalid(operation, err)
		}
		rules[i] = rule
	}
	return rules, nil
}

// counting counts written bytes.
type counting struct {
	to io.Writer
	n  int64
}

// Write writes to to.
func (c *counting) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.n += int64(n)
	return n, err
}
