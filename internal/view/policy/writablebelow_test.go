package policy_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

func TestPropertyWritableBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, dir := genRules().Draw(t, "rules"), genPath(2).Draw(t, "dir")
		p := compile(t, rules)
		if ok, _ := p.WritableBelow(dir); !ok {
			return
		}
		for _, path := range rapid.SliceOfN(genPath(4), 1, 40).Draw(t, "paths") {
			path = path.Rebase(vpath.Root, dir)
			d := p.Decide(path)
			isOwn := d.Permission == policy.None && d.Rule != policy.NoRule && p.Rule(d.Rule).Own
			if d.Permission != policy.Write && !isOwn && path != policy.ProjectFile {
				t.Fatalf("%s below %s: %+v", path, dir, d)
			}
		}
	})
}

func TestPropertyRulesBelowDecideBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, dir := genRules().Draw(t, "rules"), genPath(2).Draw(t, "dir")
		p := compile(t, rules)
		if ok, _ := p.WritableBelow(dir); !ok {
			return
		}
		below, err := policy.RulesBelow(rules, dir)
		if err != nil {
			t.Fatal(err)
		}
		alone := compile(t, below)
		for _, path := range rapid.SliceOfN(genPath(3), 1, 30).Draw(t, "paths") {
			path = path.Rebase(vpath.Root, dir)
			if got, want := alone.Decide(path).Permission, p.Decide(path).Permission; got != want {
				t.Fatalf("%s below %s: %v by the rules below, %v by all", path, dir, got, want)
			}
		}
	})
}

func TestWritableBelow(t *testing.T) {
	presetRules := func(name string, more ...policy.Rule) []policy.Rule {
		rules, err := preset.Rules(name)
		if err != nil {
			t.Fatal(err)
		}
		return append(rules, more...)
	}
	flag := func(permission policy.Permission, pattern string) policy.Rule {
		return policy.Rule{Origin: policy.OriginFlag, Permission: permission, Pattern: pattern, Source: "--" + permission.String()}
	}
	hide := func(pattern string, own bool) policy.Rule {
		return policy.Rule{Origin: policy.OriginHide, Permission: policy.None, Pattern: pattern, Own: own, Source: "--hide"}
	}
	for _, c := range []struct {
		name    string
		rules   []policy.Rule
		because string // "" if it is writable
	}{
		{"the preset development lets all be written", presetRules("development"), ""},
		{"the preset agent-safe lets it be read", presetRules("agent-safe"), "**/*"},
		{"a flag makes it writable", presetRules("agent-safe", flag(policy.Write, "node_modules/")), ""},
		{"a flag of a part of it does not", presetRules("agent-safe", flag(policy.Write, "node_modules/a/")), "**/*"},
		{"a rule that hides and is own", presetRules("development", hide("*.pem", true)), ""},
		{"a strict rule at any depth", presetRules("development", hide("*.pem", false)), "*.pem"},
		{"a strict rule elsewhere", presetRules("development", hide("/src/**", false)), ""},
		{"a flag that lets names be read", presetRules("development", flag(policy.Read, "*.txt")), "*.txt"},
		{"a rule that a wider one outranks", []policy.Rule{{Pattern: "**", Permission: policy.Write, Priority: 1}, {Pattern: "*.txt", Permission: policy.Read}}, ""},
		{"a rule that outranks a wider one", []policy.Rule{{Pattern: "**", Permission: policy.Write}, {Pattern: "*.txt", Permission: policy.View}}, "*.txt"},
		{"a rule of a file exactly there", []policy.Rule{{Pattern: "**", Permission: policy.Write}, {Pattern: "/node_modules/x", Permission: policy.Read}}, "/node_modules/x"},
		{"no rule", nil, "default deny"},
		{"a hidden parent", []policy.Rule{{Pattern: "**", Permission: policy.Write}, {Pattern: "/node_modules", Type: policy.File, Own: true}}, "/node_modules"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ok, reason := compile(t, c.rules).WritableBelow("/node_modules")
			if ok != (c.because == "") || !strings.Contains(reason, c.because) {
				t.Errorf("got %v, %q, want a reason with %q", ok, reason, c.because)
			}
		})
	}
	reserved, err := policy.Compile(presetRules("development"), policy.Options{Reserved: []vpath.Path{"/a/state"}})
	if err != nil {
		t.Fatal(err)
	}
	if ok, _ := reserved.WritableBelow("/a"); ok {
		t.Error("a reserved path below does not count")
	}
}
