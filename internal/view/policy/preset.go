package policy

import (
	"maps"
	"slices"
	"strings"
)

// DefaultPreset is used where neither a preset nor a policy file is named.
const DefaultPreset = "agent-safe"

// firstVersion ends the name of a preset as agentfense 0.3.0 had it.
const firstVersion = "@v1"

type presetRule struct {
	pattern    string
	permission Permission
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
			{"**/*", Read, 0},
			{"/output/**", Write, 10},
			{"/tmp/**", Write, 10},
			{"**/.git/**", None, 50},
		}, false,
	},
	"development": {"write everything but secrets", []presetRule{{"**/*", Write, 0}}, false},
	"full-access": {"write everything, secrets too", []presetRule{{"**/*", Write, 0}}, true},
	"read-only":   {"read everything but secrets", []presetRule{{"**/*", Read, 0}}, false},
	"view-only":   {"list everything, read nothing", []presetRule{{"**/*", View, 0}}, true},
}

// firstPresets are the presets of agentfense 0.3.0, by their present names.
var firstPresets = map[string]preset{
	"agent-safe": {
		"read everything but some secrets and .git; write in /output and /tmp", []presetRule{
			{"**/*", Read, 0},
			{"/output/**", Write, 10},
			{"/tmp/**", Write, 10},
			{"**/.git/**", None, 50},
			{"**/.env*", None, 100},
			{"**/secrets/**", None, 100},
			{"**/*.key", None, 100},
			{"**/*.pem", None, 100},
			{"**/credentials*", None, 100},
		}, true,
	},
	"development": {
		"write everything but some secrets", []presetRule{
			{"**/*", Write, 0},
			{"**/.env*", None, 100},
			{"**/secrets/**", None, 100},
			{"**/*.key", None, 100},
			{"**/*.pem", None, 100},
		}, true,
	},
	"full-access": {"write everything", []presetRule{{"**/*", Write, 0}}, true},
	"read-only":   {"read everything", []presetRule{{"**/*", Read, 0}}, true},
	"view-only":   {"list everything, read nothing", []presetRule{{"**/*", View, 0}}, true},
}

func findPreset(name string) (preset, bool) {
	if first, ok := strings.CutSuffix(name, firstVersion); ok {
		p, ok := firstPresets[first]
		return p, ok
	}
	p, ok := presets[name]
	return p, ok
}

// Preset returns the rules of the preset called name. Errors: Invalid, with the
// nearest preset's name.
func Preset(name string) ([]Rule, error) {
	p, ok := findPreset(name)
	if !ok {
		return nil, unknown("preset", name, slices.Concat(PresetNames(), FirstPresetNames()))
	}
	rules := make([]Rule, 0, len(p.rules)+len(secrets()))
	add := func(pattern string, permission Permission, priority int32) {
		rules = append(rules, Rule{
			Pattern: pattern, Permission: permission, Type: Glob, Priority: priority, Source: "preset " + name,
			Own: permission == None,
		})
	}
	for _, r := range p.rules {
		add(r.pattern, r.permission, r.priority)
	}
	if !p.open {
		for _, s := range secrets() {
			add(s.Pattern, None, SecretPriority)
		}
	}
	return rules, nil
}

// PresetNames returns the presets' names, sorted, without FirstPresetNames.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// FirstPresetNames returns the names of the presets with the rules that they had
// in agentfense 0.3.0, sorted.
func FirstPresetNames() []string {
	var names []string
	for name := range firstPresets {
		names = append(names, name+firstVersion)
	}
	slices.Sort(names)
	return names
}

// PresetSummary returns what the preset called name is for, in one line; "" if
// there is none.
func PresetSummary(name string) string {
	p, _ := findPreset(name)
	return p.summary
}
