// Package policyfile reads and writes policy files: a preset, rules, hosts, scratch
// directories, marks and what the policy is expected to decide, in YAML.
package policyfile

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// Version is the version of the policy file's format.
const Version = 1

// MaxBytes bounds a policy file; 65,536 rules fit.
const MaxBytes = 8 << 20

// Document is a policy file as it was read.
type Document struct {
	Version int
	Preset  string        // "" if none is named
	Rules   []policy.Rule // the file's own; AllRules has the preset's too
	Network *Network      // nil if the file says nothing of it
	Scratch []Scratch     // nil if the file says nothing of them
	Marks   []RiskFlag    // more of what is marked in a review; built-in marks stay
	Expect  []Expectation
}

// AllRules returns the rules of the preset, if one is named, then the file's.
// Errors: Invalid for an unknown preset; one from Load has none.
func (d *Document) AllRules() ([]policy.Rule, error) {
	if d.Preset == "" {
		return slices.Clone(d.Rules), nil
	}
	rules, err := preset.Rules(d.Preset)
	if err != nil {
		return nil, err
	}
	return append(rules, d.Rules...), nil
}

// Load reads a policy file. It is strict: whatever is not understood is an
// error, never ignored. name stands for the file in errors and in the rules'
// Source ("NAME:LINE").
//
// Errors: Invalid, with name, line and the nearest valid word; Unavailable if r
// fails.
func Load(r io.Reader, name string) (*Document, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, errdefs.New(errdefs.Unavailable, "%s: read: %w", vpath.Escape(name), err)
	}
	l := loader{File: yamlfile.File(name), file: new(Document)}
	if len(text) > MaxBytes {
		return nil, l.At(1, "the file is longer than %d bytes", MaxBytes)
	}
	document, err := l.ParseVersioned(text, Version)
	if err != nil {
		return nil, err
	}
	return l.file, l.readFile(document)
}

// loader turns the nodes of a YAML document into a Document.
type loader struct {
	yamlfile.File
	file *Document
}

// ReadRules reads a list of rules, a value in another kind of file. Their Source is a line of it.
// Errors: Invalid, with file, line and the nearest valid word.
func ReadRules(file yamlfile.File, n *yaml.Node) ([]policy.Rule, error) {
	l := loader{File: file, file: new(Document)}
	err := l.readRules(n)
	return l.file.Rules, err
}

func (l *loader) readFile(n *yaml.Node) error {
	has, err := l.Mapping(n, "policy file", []yamlfile.Field{
		{Key: "version", Read: l.readVersion},
		{Key: "preset", Read: l.readPreset},
		{Key: "rules", Read: l.readRules},
		{Key: "network", Read: l.readNetwork},
		{Key: "scratch", Read: l.readScratch},
		{Key: "marks", Read: l.readMarks},
		{Key: "expect", Read: l.readExpectations},
	})
	switch {
	case err != nil:
		return err
	case !has["version"]:
		return l.At(n.Line, "version is missing: the file begins with version: %d", Version)
	case !has["preset"] && !has["rules"]:
		return l.At(n.Line, "preset and rules are both missing")
	}
	return nil
}

func (l *loader) readVersion(n *yaml.Node) error {
	l.file.Version = Version
	return l.CheckVersion(n, Version)
}

func (l *loader) readPreset(n *yaml.Node) error {
	name, err := l.Text(n, "preset")
	if err != nil {
		return err
	}
	if _, err := preset.Rules(name); err != nil {
		return l.At(n.Line, "%w", err)
	}
	l.file.Preset = name
	return nil
}

func (l *loader) readRules(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return l.At(n.Line, "rules is a list, not %s", yamlfile.Shape(n))
	}
	for _, item := range n.Content {
		rule, err := l.readRule(item)
		if err != nil {
			return err
		}
		l.file.Rules = append(l.file.Rules, rule)
	}
	return nil
}

func (l *loader) readRule(n *yaml.Node) (policy.Rule, error) {
	rule := policy.Rule{Source: fmt.Sprintf("%s:%d", l.File, n.Line)}
	patternLine, strict := n.Line, false
	var apply, keys *yaml.Node
	has, err := l.Mapping(n, "rule", []yamlfile.Field{
		{Key: "pattern", Read: func(v *yaml.Node) (err error) {
			patternLine = v.Line
			rule.Pattern, err = l.Text(v, "pattern")
			return err
		}},
		{Key: "permission", Read: func(v *yaml.Node) (err error) {
			rule.Permission, err = readWord(l, v, "permission", policy.ParsePermission)
			return err
		}},
		{Key: "type", Read: func(v *yaml.Node) (err error) {
			rule.Type, err = readWord(l, v, "type", policy.ParsePatternType)
			return err
		}},
		{Key: "priority", Read: func(v *yaml.Node) (err error) {
			rule.Priority, err = readWord(l, v, "priority", parsePriority)
			return err
		}},
		{Key: "strict", Read: func(v *yaml.Node) (err error) {
			strict, err = readWord(l, v, "strict", parseBool)
			return err
		}},
		{Key: "redact", Read: func(v *yaml.Node) (err error) {
			rule.Transform.Redact, err = readWord(l, v, "redact", policy.ParseFormat)
			return err
		}},
		{Key: "substitute", Read: func(v *yaml.Node) (err error) {
			rule.Transform.Substitute, err = l.Text(v, "substitute")
			if err == nil && rule.Transform.Substitute == "" {
				err = l.At(v.Line, "substitute is empty: name a file of the workspace")
			}
			return err
		}},
		{Key: "apply", Read: func(v *yaml.Node) (err error) {
			apply = v
			rule.Keep, err = readWord(l, v, "apply", parseApply)
			return err
		}},
		{Key: "keys", Read: func(v *yaml.Node) (err error) {
			keys = v
			rule.Keys, err = l.readKeys(v)
			return err
		}},
	})
	if err != nil {
		return rule, err
	}
	if !has["permission"] && !rule.Transform.IsZero() {
		rule.Permission, has["permission"] = policy.Read, true
	}
	for _, key := range []string{"pattern", "permission"} {
		if !has[key] {
			return rule, l.At(n.Line, "%s is missing in the rule", key)
		}
	}
	if err := l.checkKeeping(&rule, apply, keys); err != nil {
		return rule, err
	}
	switch {
	case !rule.Transform.IsZero() && rule.Permission != policy.Read:
		return rule, l.At(n.Line, "%s goes with permission read, not %s: write permission: read, or leave permission out", rule.Transform, rule.Permission)
	case has["strict"] && rule.Permission != policy.None:
		return rule, l.At(n.Line, "strict goes with permission none, not %s", rule.Permission)
	case rule.Permission == policy.None:
		rule.Own = !strict
	}
	if err := rule.Check(); err != nil {
		return rule, l.At(patternLine, "pattern %s: %w", vpath.Quote(rule.Pattern), err)
	}
	return rule, nil
}

func readWord[T any](l *loader, n *yaml.Node, key string, parse func(string) (T, error)) (T, error) {
	text, err := l.Text(n, key)
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := parse(text)
	if err != nil {
		return v, l.At(n.Line, "%w", err)
	}
	return v, nil
}

func parsePriority(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, errdefs.New(errdefs.Invalid, "priority %s is no whole number between %d and %d",
			vpath.Quote(s), math.MinInt32, math.MaxInt32)
	}
	return int32(n), nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errdefs.New(errdefs.Invalid, "strict is true or false, not %s", vpath.Quote(s))
}
