package policyfile

import (
	"bytes"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// written is the form in which Write has a rule.
type written struct {
	Pattern    string `yaml:"pattern"`
	Permission string `yaml:"permission"`
	Type       string `yaml:"type,omitempty"`
	Priority   int32  `yaml:"priority,omitempty"`
	Strict     bool   `yaml:"strict,omitempty"`
	Redact     string `yaml:"redact,omitempty"`
	Substitute string `yaml:"substitute,omitempty"`

	Apply string   `yaml:"apply,omitempty"`
	Keys  []string `yaml:"keys,omitempty,flow"`
}

// writtenOf is the form of a rule.
func writtenOf(r policy.Rule) written {
	one := written{
		Pattern: r.Pattern, Permission: r.Permission.String(), Priority: r.Priority, Strict: r.Permission == policy.None && !r.Own,
		Redact: r.Transform.Redact.String(), Substitute: r.Transform.Substitute, Keys: r.Keys.List(),
	}
	if r.Keep {
		one.Apply = applyKeep
	}
	if r.Type != policy.Auto {
		one.Type = r.Type.String()
	}
	return one
}

// hosts is the form in which Write has the network.
type hosts struct {
	Allow  []string  `yaml:"allow"`
	Limits yaml.Node `yaml:"limits,omitempty"`
}

// limits returns the mapping of limits, in their order.
func (n *Network) limits() yaml.Node {
	if len(n.Limits) == 0 {
		return yaml.Node{}
	}
	m := yaml.Node{Kind: yaml.MappingNode}
	for _, l := range n.Limits {
		m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: l.Name}, &yaml.Node{Kind: yaml.ScalarNode, Value: l.Value})
	}
	return m
}

// expected is the form in which Write has an expectation.
type expected struct {
	Path       string `yaml:"path"`
	Permission string `yaml:"permission"`
}

// Write writes d as a policy file, which Load reads again. A rule's Source is
// not in it. Errors: Invalid for what a file cannot hold; those of w.
func (d *Document) Write(w io.Writer) error {
	file := struct {
		Version int        `yaml:"version"`
		Preset  string     `yaml:"preset,omitempty"`
		Rules   []written  `yaml:"rules"`
		Network *hosts     `yaml:"network,omitempty"`
		Scratch []string   `yaml:"scratch,omitempty"`
		Marks   []RiskFlag `yaml:"marks,omitempty"`
		Expect  []expected `yaml:"expect,omitempty"`
	}{Version: Version, Preset: d.Preset, Rules: []written{}, Scratch: d.ScratchTexts(), Marks: d.Marks}
	for _, r := range d.Rules {
		file.Rules = append(file.Rules, writtenOf(r))
	}
	for _, x := range d.Expect {
		path := string(x.Path)
		if x.Dir && !x.Path.IsRoot() {
			path += "/"
		}
		file.Expect = append(file.Expect, expected{path, x.Permission.String()})
	}
	if d.Network != nil {
		file.Network = &hosts{d.Network.Texts(), d.Network.limits()}
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return errdefs.New(errdefs.Invalid, "policy file: %w", err)
	}
	again, err := Load(bytes.NewReader(text), "policy file")
	if err != nil {
		return err
	}
	same := func(a, b policy.Rule) bool {
		a.Source, b.Source, a.Origin, b.Origin = "", "", 0, 0
		return a == b
	}
	if i := slices.IndexFunc(d.Rules, func(r policy.Rule) bool {
		return !slices.ContainsFunc(again.Rules, func(b policy.Rule) bool { return same(r, b) })
	}); i >= 0 {
		return errdefs.New(errdefs.Invalid, "policy file: it cannot hold the pattern %s", vpath.Quote(d.Rules[i].Pattern))
	}
	_, err = w.Write(text)
	return err
}
