package policy

import (
	"maps"
	"slices"
)

// DefaultPreset is used where neither a preset nor a policy file is named.
const DefaultPreset = "agent-safe"

type presetRule struct {
	pattern    string
	permission Permission
	priority   int32
}

type preset struct {
	summary string
	rules   []presetRule
}

// presets are part of the public API (docs/policy.md, the Python package's
// PRESETS): all of type glob.
var presets = map[string]preset{
	"agent-safe": {
		"read everything but secrets and .git; write in /output and /tmp", []presetRule{
			{"**/*", Read, 0},
			{"/output/**", Write, 10},
			{"/tmp/**", Write, 10},
			{"**/.git/**", None, 50},
			{"**/.env*", None, 100},
			{"**/secrets/**", None, 100},
			{"**/*.key", None, 100},
			{"**/*.pem", None, 100},
			{"**/credentials*", None, 100},
		},
	},
	"development": {
		"write everything but secrets", []presetRule{
			{"**/*", Write, 0},
			{"**/.env*", None, 100},
			{"**/secrets/**", None, 100},
			{"**/*.key", None, 100},
			{"**/*.pem", None, 100},
		},
	},
	"full-access": {"write everything", []presetRule{{"**/*", Write, 0}}},
	"read-only":   {"read everything", []presetRule{{"**/*", Read, 0}}},
	"view-only":   {"list everything, read nothing", []presetRule{{"**/*", View, 0}}},
}

// Preset returns the rules of the preset called name. Errors: Invalid, with the
// nearest preset's name.
func Preset(name string) ([]Rule, error) {
	p, ok := presets[name]
	if !ok {
		return nil, unknown("preset", name, PresetNames())
	}
	rules := make([]Rule, len(p.rules))
	for i, r := range p.rules {
		rules[i] = Rule{
			Pattern: r.pattern, Permission: r.permission, Type: Glob,
			Priority: r.priority, Source: "preset " + name,
		}
	}
	return rules, nil
}

// PresetNames returns the presets' names, sorted.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// PresetSummary returns what the preset called name is for, in one line; "" if
// there is none.
func PresetSummary(name string) string { return presets[name].summary }
