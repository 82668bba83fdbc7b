// Package preset has the policies that agentfense comes with, by their names.
package preset

import (
	"maps"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// Default is the preset that is used where neither a preset nor a policy file is named.
const Default = "agent-safe"

// firstVersion ends the name of a preset as agentfense 0.3.0 had it.
const firstVersion = "@v1"

type presetRule struct {
	pattern    string
	permission policy.Permission
	priority   int32
}

type preset struct {
	summary string
	rules   []presetRule
	open    bool // it shows secrets too
}

// SecretPriority is that of the rules that hide secrets: above what a preset or
// a client grants (client.GrantPriority).
const SecretPriority = 100

// presets are part of the public API (docs/policy.md, the Python package's
// PRESETS): all of type glob. The rules that hide secrets come after these.
var presets = map[string]preset{
	"agent-safe": {
		"read everything but secrets and .git; write in /output and /tmp", []presetRule{
			{"**/*", policy.Read, 0},
			{"/output/**", policy.Write, 10},
			{"/tmp/**", policy.Write, 10},
			{"**/.git/**", policy.None, 50},
		}, false,
	},
	"development": {"write everything but secrets", []presetRule{{"**/*", policy.Write, 0}}, false},
	"full-access": {"write everything, secrets too", []presetRule{{"**/*", policy.Write, 0}}, true},
	"nothing":     {"permit nothing; for a policy file whose rules permit what is needed, but no secrets", nil, false},
	"read-only":   {"read everything but secrets", []presetRule{{"**/*", policy.Read, 0}}, false},
	"view-only":   {"list everything, read nothing", []presetRule{{"**/*", policy.View, 0}}, true},
}

// firstPresets are the presets of agentfense 0.3.0, by their present names.
var firstPresets = map[string]preset{
	"agent-safe": {
		"read everything but some secrets and .git; write in /output and /tmp", []presetRule{
			{"**/*", policy.Read, 0},
			{"/output/**", policy.Write, 10},
			{"/tmp/**", policy.Write, 10},
			{"**/.git/**", policy.None, 50},
			{"**/.env*", policy.None, 100},
			{"**/secrets/**", policy.None, 100},
			{"**/*.key", policy.None, 100},
			{"**/*.pem", policy.None, 100},
			{"**/credentials*", policy.None, 100},
		}, true,
	},
	"development": {
		"write everything but some secrets", []presetRule{
			{"**/*", policy.Write, 0},
			{"**/.env*", policy.None, 100},
			{"**/secrets/**", policy.None, 100},
			{"**/*.key", policy.None, 100},
			{"**/*.pem", policy.None, 100},
		}, true,
	},
	"full-access": {"write everything", []presetRule{{"**/*", policy.Write, 0}}, true},
	"read-only":   {"read everything", []presetRule{{"**/*", policy.Read, 0}}, true},
	"view-only":   {"list everything, read nothing", []presetRule{{"**/*", policy.View, 0}}, true},
}

func findPreset(name string) (preset, bool) {
	if first, ok := strings.CutSuffix(name, firstVersion); ok {
		p, ok := firstPresets[first]
		return p, ok
	}
	p, ok := presets[name]
	return p, ok
}

// Rules returns the rules of the preset called name. Errors: Invalid, with the
// nearest preset's name.
func Rules(name string) ([]policy.Rule, error) {
	p, ok := findPreset(name)
	if !ok {
		return nil, nearest.Unknown("preset", name, slices.Concat(Names(), FirstNames()))
	}
	names := secretname.All()
	rules := make([]policy.Rule, 0, len(p.rules)+len(names))
	add := func(pattern string, permission policy.Permission, priority int32) {
		rules = append(rules, policy.Rule{
			Pattern: pattern, Permission: permission, Type: policy.Glob, Priority: priority, Source: "preset " + name,
			Own: permission == policy.None,
		})
	}
	for _, r := range p.rules {
		add(r.pattern, r.permission, r.priority)
	}
	if !p.open {
		for _, s := range names {
			add(s.Pattern, policy.None, SecretPriority)
		}
	}
	return rules, nil
}

// Names returns the presets' names, sorted, without FirstNames.
func Names() []string { return slices.Sorted(maps.Keys(presets)) }

// FirstNames returns the names of the presets with the rules that they had
// in agentfense 0.3.0, sorted.
func FirstNames() []string {
	var names []string
	for name := range firstPresets {
		names = append(names, name+firstVersion)
	}
	slices.Sort(names)
	return names
}

// Summary returns what the preset called name is for, in one line; "" if
// there is none.
func Summary(name string) string {
	p, _ := findPreset(name)
	return p.summary
}
