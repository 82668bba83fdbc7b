package preset_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// TestTheFirstPresetsAreAsPublished holds the rules of 0.3.0 to what they were.
func TestTheFirstPresetsAreAsPublished(t *testing.T) {
	secrets := []string{"**/.env*:none:100", "**/secrets/**:none:100", "**/*.key:none:100", "**/*.pem:none:100"}
	want := map[string][]string{
		"agent-safe@v1": slices.Concat(
			[]string{"**/*:read:0", "/output/**:write:10", "/tmp/**:write:10", "**/.git/**:none:50"},
			secrets, []string{"**/credentials*:none:100"}),
		"development@v1": append([]string{"**/*:write:0"}, secrets...),
		"full-access@v1": {"**/*:write:0"},
		"read-only@v1":   {"**/*:read:0"},
		"view-only@v1":   {"**/*:view:0"},
	}
	if diff := cmp.Diff(want, publishedRules(t, preset.FirstNames())); diff != "" {
		t.Errorf("presets (-want +got):\n%s", diff)
	}
}

// TestThePresetsAreAsPublished: each is a few rules of its own, and the names of
// secrets after them.
func TestThePresetsAreAsPublished(t *testing.T) {
	var secrets []string
	for _, s := range secretname.All() {
		secrets = append(secrets, s.Pattern+":none:100")
	}
	want := map[string][]string{
		"agent-safe":  append([]string{"**/*:read:0", "/output/**:write:10", "/tmp/**:write:10", "**/.git/**:none:50"}, secrets...),
		"development": append([]string{"**/*:write:0"}, secrets...),
		"full-access": {"**/*:write:0"},
		"nothing":     secrets,
		"read-only":   append([]string{"**/*:read:0"}, secrets...),
		"view-only":   {"**/*:view:0"},
	}
	if diff := cmp.Diff(want, publishedRules(t, preset.Names())); diff != "" {
		t.Errorf("presets (-want +got):\n%s", diff)
	}
	if !slices.IsSorted(preset.Names()) || !slices.Contains(preset.Names(), preset.Default) {
		t.Errorf("PresetNames = %v", preset.Names())
	}
}

// publishedRules returns the rules of presets, as "pattern:permission:priority".
func publishedRules(t *testing.T, names []string) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for _, name := range names {
		rules, err := preset.Rules(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			if r.Type != policy.Glob || r.Origin != policy.OriginRule || r.Source != "preset "+name {
				t.Errorf("%s: %+v", name, r)
			}
			got[name] = append(got[name], fmt.Sprintf("%s:%s:%d", r.Pattern, r.Permission, r.Priority))
		}
		if preset.Summary(name) == "" {
			t.Errorf("%s has no summary", name)
		}
		if warnings := compile(t, rules).Check(); len(warnings) > 0 && name != "nothing" {
			t.Errorf("%s: %v", name, warnings)
		}
	}
	return got
}

func TestAnUnknownPresetNamesTheNearest(t *testing.T) {
	_, err := preset.Rules("agentsafe")
	if !errdefs.Is(err, errdefs.Invalid) || err.Error() != `unknown preset "agentsafe": did you mean "agent-safe"?` {
		t.Errorf("Preset error = %v", err)
	}
}

func TestWhatTheAgentSafePresetShows(t *testing.T) {
	p := compile(t, rulesOf(t, "agent-safe"))
	for path, want := range map[vpath.Path]string{
		"/":                   "read",
		"/main.go":            "read",
		"/.gitignore":         "read",
		"/.git":               "none",
		"/.git/config":        "none",
		"/sub/.git/hooks/x":   "none",
		"/output":             "write",
		"/output/a/b":         "write",
		"/output/.git/config": "none",
		"/output/x.pem":       "none",
		"/sub/output":         "read",
		"/tmp/a":              "write",
		"/.env":               "none",
		"/.envrc":             "read",
		"/.env.example":       "read",
		"/cacert.pem":         "read",
		"/a/.env.local":       "none",
		"/.env.d/settings":    "none",
		"/secrets":            "none",
		"/a/secrets/b/c":      "none",
		"/secretsx":           "read",
		"/id.key":             "none",
		"/certs.pem/x":        "none",
		"/certs/server.pem":   "none",
		"/credentials.json":   "none",
		"/.aws/credentials":   "none",
	} {
		if d := p.Decide(path); outcome(d) != want {
			t.Errorf("Decide(%s) = %s (%s), want %s", path, outcome(d), d.Reason, want)
		}
	}
	if !p.ChildWritable("/") || p.ChildWritable("/src") || !p.ChildWritable("/output/a") {
		t.Error("only / and what lies below /output and /tmp has writable children")
	}
}

func rulesOf(t *testing.T, name string) []policy.Rule {
	t.Helper()
	rules, err := preset.Rules(name)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func compile(t *testing.T, rules []policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outcome is "none", "view", "read", "write", or "traversable".
func outcome(d policy.Decision) string {
	if d.Permission == policy.None && d.Traversable {
		return "traversable"
	}
	return d.Permission.String()
}
