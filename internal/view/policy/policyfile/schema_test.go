package policyfile

import (
	"encoding/json"
	"flag"
	"math"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/schematest"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

var update = flag.Bool("update", false, "rewrite golden files")

// wantSchema builds the schema from the words that the loader knows.
func wantSchema() *jsonschema.Schema {
	words := func(description string, words []string) *jsonschema.Schema {
		s := &jsonschema.Schema{Description: description}
		for _, w := range words {
			s.Enum = append(s.Enum, w)
		}
		return s
	}
	nothingElse := func() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }
	var version any = Version
	least, most, one := float64(math.MinInt32), float64(math.MaxInt32), 1
	longest, mostKeys := policy.MaxPatternBytes, jsonkeys.MaxKeys
	rule := &jsonschema.Schema{
		Type:        "object",
		Description: "What the paths that a pattern matches may be used for.",
		Properties: map[string]*jsonschema.Schema{
			"pattern": {
				Types: []string{"string", "number", "boolean"}, MinLength: &one, MaxLength: &longest,
				Description: "A path or glob. Only a slash before the last character ties it to the workspace's root.",
			},
			"permission": words("The most that is allowed.", policy.Permissions()),
			"type":       words("How the pattern is read; told from its text if not given.", policy.PatternTypes()),
			"priority": {
				Type: "integer", Minimum: &least, Maximum: &most, Default: json.RawMessage("0"),
				Description: "The matching rule of the highest priority wins.",
			},
			"strict": {
				Type: "boolean", Default: json.RawMessage("false"),
				Description: "With permission none: nothing can be made there either.",
			},
			"redact": words("With permission read: show the file with masked values. This is its format.", policy.Formats()),
			"substitute": {
				Types: []string{"string", "number", "boolean"}, MinLength: &one,
				Description: "With permission read: show the content of this file of the workspace. Without a slash it is beside the file.",
			},
			"apply": words("With permission write: changes wait for a review, or are kept, which applies them when the command ends.", applyWords),
			"keys": {
				Type: "array", MinItems: &one, MaxItems: &mostKeys,
				Description: "With apply: keep, of a JSON file: keep these keys alone, such as projects.*.history.",
				Items:       &jsonschema.Schema{Type: "string", MinLength: &one},
			},
		},
		PropertyOrder:        []string{"pattern", "permission", "type", "priority", "strict", "redact", "substitute", "apply", "keys"},
		Required:             []string{"pattern"},
		AnyOf:                []*jsonschema.Schema{{Required: []string{"permission"}}, {Required: []string{"redact"}}, {Required: []string{"substitute"}}},
		AdditionalProperties: nothingElse(),
	}
	longestReason, mostMarks := maxReasonBytes, MaxMarks
	mark := &jsonschema.Schema{
		Type:        "object",
		Description: "Files that act on the host once they are changed.",
		Properties: map[string]*jsonschema.Schema{
			"pattern": {
				Types: []string{"string", "number", "boolean"}, MinLength: &one, MaxLength: &longest,
				Description: "A path or glob, as of a rule, without regard to case.",
			},
			"reason": {Type: "string", MinLength: &one, MaxLength: &longestReason, Description: "What runs or obeys them, for the review."},
		},
		PropertyOrder:        []string{"pattern", "reason"},
		Required:             []string{"pattern", "reason"},
		AdditionalProperties: nothingElse(),
	}
	limits := &jsonschema.Schema{
		Type: "object", Description: "Limits of the network, as run --net-limit takes them.",
		Properties: map[string]*jsonschema.Schema{
			"connections": limitOf("Connections at once, such as 100.", "^[1-9][0-9]*$"),
			"new":         limitOf("New connections per second, minute or hour, such as 10/s.", "^[1-9][0-9]*/[smh]$"),
			"out":         limitOf("Bytes that are sent, in total, such as 50M.", "^[0-9.]+[KkMmGgTt]?$"),
			"in":          limitOf("Bytes that are received, in total, such as 1G.", "^[0-9.]+[KkMmGgTt]?$"),
			"rate":        limitOf("Bytes per second, minute or hour in both directions, such as 1M/s.", "^[0-9.]+[KkMmGgTt]?/[smh]$"),
		},
		PropertyOrder:        netLimits,
		AdditionalProperties: nothingElse(),
	}
	mostHosts := MaxHosts
	network := &jsonschema.Schema{
		Type:        "object",
		Description: "What a sandbox may reach. Without this key that is nothing.",
		Properties: map[string]*jsonschema.Schema{
			"allow": {
				Type: "array", MaxItems: &mostHosts, Description: "The hosts, as run --allow-net takes them.",
				Items: &jsonschema.Schema{Type: "string", MinLength: &one, Description: "HOST[:PORT], *.DOMAIN, @PRESET or HOST:PORT,raw."},
			},
			"limits": limits,
		},
		PropertyOrder:        []string{"allow", "limits"},
		Required:             []string{"allow"},
		AdditionalProperties: nothingElse(),
	}
	expectation := &jsonschema.Schema{
		Type:        "object",
		Description: "What the policy decides at a path.",
		Properties: map[string]*jsonschema.Schema{
			"path":       {Types: []string{"string", "number", "boolean"}, MinLength: &one, Description: "A path from the workspace's root; with a slash at its end a directory."},
			"permission": words("What is expected.", policy.Permissions()),
		},
		PropertyOrder:        []string{"path", "permission"},
		Required:             []string{"path", "permission"},
		AdditionalProperties: nothingElse(),
	}
	mostExpectations, mostScratch := MaxExpectations, MaxScratch
	return &jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema",
		Title:  "agentfense policy", Description: "What a sandbox may see and change of a directory.",
		Type: "object",
		Properties: map[string]*jsonschema.Schema{
			"version": {Const: &version, Description: "The version of this format."},
			"preset":  words("A preset whose rules come first.", slices.Concat(preset.Names(), preset.FirstNames())),
			"rules":   {Type: "array", Items: rule, Description: "The rules; their order is without meaning."},
			"network": network,
			"scratch": {
				Type: "array", MaxItems: &mostScratch, Description: "Directories with contents that are not reviewed, as run --scratch takes them.",
				Items: &jsonschema.Schema{Type: "string", MinLength: &one, Description: "A directory of the workspace, such as node_modules."},
			},
			"marks":  {Type: "array", Items: mark, MaxItems: &mostMarks, Description: "More files that a review marks; the built-in marks stay."},
			"expect": {Type: "array", Items: expectation, MaxItems: &mostExpectations, Description: "What agentfense policy test checks."},
		},
		PropertyOrder:        []string{"version", "preset", "rules", "network", "scratch", "marks", "expect"},
		Required:             []string{"version"},
		AnyOf:                []*jsonschema.Schema{{Required: []string{"preset"}}, {Required: []string{"rules"}}},
		AdditionalProperties: nothingElse(),
	}
}

// limitOf is a limit of the network.
func limitOf(description, pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "number"}, Description: description, Pattern: pattern}
}

func TestSchemaNamesWhatTheLoaderReads(t *testing.T) {
	schematest.Golden(t, wantSchema(), Schema(), "schema.json", *update)
}

// SchemaAccepts validates the YAML text against Schema.
func SchemaAccepts(t testing.TB, text string) error {
	t.Helper()
	return schematest.Accepts(t, Schema(), text)
}
