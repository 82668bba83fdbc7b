package policyfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

func TestLoadReadsEveryField(t *testing.T) {
	const text = `# comments and CRLF are fine` + "\r\n" + `version: 1
preset: read-only
rules:
  - pattern: "**/*.pem"
    permission: none
    type: glob
    priority: 100
  - {pattern: "*.key", permission: none, strict: true}
  - {pattern: src/, permission: write}
  - permission: view
    pattern: 2024
    type: directory
    priority: -1
  - {pattern: .env, redact: env}
  - {pattern: local.env, permission: read, substitute: /example.env}
  - {pattern: .claude.json, permission: write, apply: keep, keys: [history, "projects.*.history"]}
  - {pattern: state/, permission: write, apply: keep}
  - {pattern: other/, permission: write, apply: review}
`
	got, err := policyfile.Load(strings.NewReader(text), "policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := &policyfile.Document{Version: 1, Preset: "read-only", Rules: []policy.Rule{
		{Pattern: "**/*.pem", Permission: policy.None, Type: policy.Glob, Priority: 100, Source: "policy.yaml:5", Own: true},
		{Pattern: "*.key", Permission: policy.None, Source: "policy.yaml:9"},
		{Pattern: "src/", Permission: policy.Write, Source: "policy.yaml:10"},
		{Pattern: "2024", Permission: policy.View, Type: policy.Directory, Priority: -1, Source: "policy.yaml:11"},
		{Pattern: ".env", Permission: policy.Read, Transform: policy.Transform{Redact: policy.Env}, Source: "policy.yaml:15"},
		{Pattern: "local.env", Permission: policy.Read, Transform: policy.Transform{Substitute: "/example.env"}, Source: "policy.yaml:16"},
		{Pattern: ".claude.json", Permission: policy.Write, Source: "policy.yaml:17", Keep: true, Keys: "history\nprojects.*.history"},
		{Pattern: "state/", Permission: policy.Write, Source: "policy.yaml:18", Keep: true},
		{Pattern: "other/", Permission: policy.Write, Source: "policy.yaml:19"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
	first, err := preset.Rules("read-only")
	if err != nil {
		t.Fatal(err)
	}
	all, err := got.AllRules()
	if err != nil || len(all) != len(first)+9 || all[0].Source != "preset read-only" {
		t.Errorf("AllRules = %v, %v: want the preset's rule first", all, err)
	}
	if err := policyfile.SchemaAccepts(t, text); err != nil {
		t.Errorf("the schema refuses it: %v", err)
	}
}

func TestAnEmptyRuleListShowsNothing(t *testing.T) {
	d, err := policyfile.Load(strings.NewReader("version: 1\nrules: []\n"), "p")
	if err != nil {
		t.Fatal(err)
	}
	all, _ := d.AllRules()
	if got := compile(t, all).Decide("/a"); got.Permission != policy.None || got.Traversable {
		t.Errorf("Decide = %+v, want none", got)
	}
}

func TestLoadRefusesWhatItDoesNotUnderstand(t *testing.T) {
	rule := func(s string) string { return "version: 1\nrules:\n  - " + s + "\n" }
	tests := []struct{ name, text, want string }{
		{"an empty file", "", `1: the file is empty: it begins with version: 1`},
		{"only a comment", "# x\n", `1: the file is empty: it begins with version: 1`},
		{"a list", "- a\n", `1: a policy file is a mapping, not a list`},
		{"a word", "read-only\n", `1: a policy file is a mapping, not a single value`},
		{"no version", "preset: read-only\n", `1: version is missing: the file begins with version: 1`},
		{"another version", "version: 2\n", `1: version "2" is not known: this agentfense reads version 1`},
		{"a version in words", "version: one\n", `1: version "one" is not known: this agentfense reads version 1`},
		{"neither preset nor rules", "version: 1\n", `1: preset and rules are both missing`},
		{"an unknown key", "version: 1\nrule: []\n", `2: unknown key "rule": did you mean "rules"?`},
		{"a key far from any", "version: 1\nx: []\n", `2: unknown key "x": it is one of version, preset, rules, network, scratch, marks, expect`},
		{"a network that is a list", "version: 1\npreset: read-only\nnetwork: [a]\n", `3: a network is a mapping, not a list`},
		{"a network without hosts", "version: 1\npreset: read-only\nnetwork: {}\n", `3: allow is missing in network: it is a list of hosts, [] for none`},
		{"a network with another key", "version: 1\npreset: read-only\nnetwork: {alow: []}\n", `3: unknown key "alow": did you mean "allow"?`},
		{"hosts that are no list", "version: 1\npreset: read-only\nnetwork:\n  allow: a.example\n", `4: allow is a list of hosts, not a single value`},
		{"an unquoted preset of hosts", "version: 1\npreset: read-only\nnetwork:\n  allow:\n  - @npm\n", `5: not YAML: no value can begin with this character without quotation marks`},
		{"a host that is a mapping", "version: 1\npreset: read-only\nnetwork:\n  allow:\n  - host: a\n", `5: a host is text, not a mapping: quote a value that begins with * { or [`},
		{"marks that are no list", "version: 1\npreset: read-only\nmarks: x\n", `3: marks is a list, not a single value`},
		{"a mark without a reason", "version: 1\npreset: read-only\nmarks:\n- pattern: x\n", `4: mark "x": reason is missing: say what runs or obeys the file`},
		{"a mark without a pattern", "version: 1\npreset: read-only\nmarks:\n- reason: x\n", `4: pattern is missing in the mark`},
		{"a mark that would weaken", "version: 1\npreset: read-only\nmarks:\n- {pattern: x, reason: y, risk: none}\n", `4: unknown key "risk": it is one of pattern, reason`},
		{"a mark's reason that does not print", "version: 1\npreset: read-only\nmarks:\n- {pattern: x, reason: \"a\\eb\"}\n", `4: mark "x": reason: has characters that cannot be printed`},
		{"a key that is a list", "? [a]\n: b\n", `1: unknown key "": it is one of version, preset, rules, network, scratch, marks, expect`},
		{"a key twice", "version: 1\nversion: 1\n", `2: key "version" is given twice`},
		{"an unknown preset", "version: 1\npreset: devlopment\n", `2: unknown preset "devlopment": did you mean "development"?`},
		{"a preset without a value", "version: 1\npreset:\n", `2: preset has no value`},
		{"rules that are no list", "version: 1\nrules:\n  pattern: a\n", `3: rules is a list, not a mapping`},
		{"rules without a value", "version: 1\nrules:\n", `2: rules is a list, not nothing`},
		{"a rule that is a word", rule("secrets"), `3: a rule is a mapping, not a single value`},
		{"an unknown key of a rule", rule("{patern: a, permission: read}"), `3: unknown key "patern": did you mean "pattern"?`},
		{"a rule's key twice", rule("{pattern: a, pattern: b}"), `3: key "pattern" is given twice`},
		{"a merge key", rule("{<<: {pattern: a}}"), `3: unknown key "<<": it is one of pattern, permission, type, priority, strict, redact, substitute, apply, keys`},
		{"no pattern", rule("permission: read"), `3: pattern is missing in the rule`},
		{"no permission", rule("pattern: a"), `3: permission is missing in the rule`},
		{"a pattern without a value", rule("pattern: # a"), `3: pattern has no value`},
		{"an unknown permission", rule("pattern: a\n    permission: raed"), `4: unknown permission "raed": did you mean "read"?`},
		{"a permission in capitals", rule("pattern: a\n    permission: READ"), `4: unknown permission "READ": did you mean "read"?`},
		{"a permission of the wire", rule("pattern: a\n    permission: execute"), `4: unknown permission "execute": it is one of none, view, read, write`},
		{"an unknown type", rule("pattern: a\n    permission: read\n    type: dir"), `5: unknown type "dir": did you mean "directory"?`},
		{"a mistyped type", rule("pattern: a\n    permission: read\n    type: golb"), `5: unknown type "golb": did you mean "glob"?`},
		{"strict on a rule that hides nothing", rule("{pattern: a, permission: read, strict: true}"), `3: strict goes with permission none, not read`},
		{"redact with permission none", rule("{pattern: a, permission: none, redact: env}"), `3: redact: env goes with permission read, not none: write permission: read, or leave permission out`},
		{"substitute with permission view", rule("{pattern: a, permission: view, substitute: b}"), `3: substitute: "b" goes with permission read, not view: write permission: read, or leave permission out`},
		{"redact and strict", rule("{pattern: a, redact: env, strict: true}"), `3: strict goes with permission none, not read`},
		{"redact and substitute", rule("{pattern: a, redact: env, substitute: b}"), `3: pattern "a": redact and substitute exclude each other: keep one of them`},
		{"an unknown format", rule("pattern: a\n    redact: ini"), `4: unknown format "ini": it is one of env, json, yaml, toml`},
		{"a substitute above the workspace", rule("{pattern: a, substitute: ../b}"), `3: pattern "a": substitute "../b": path "../b": name ".." is not allowed`},
		{"a substitute that is a directory", rule("{pattern: a, substitute: b/}"), `3: pattern "a": substitute "b/": want the path of a file`},
		{"an empty substitute", rule("pattern: a\n    substitute: ''"), `4: substitute is empty: name a file of the workspace`},
		{"a word near a value of apply", rule("{pattern: a, permission: write, apply: kepp}"), `3: unknown apply "kepp": did you mean "keep"?`},
		{"keeping what cannot be written", rule("pattern: a\n    apply: keep\n    permission: read"), `4: apply: keep goes with permission write, not read`},
		{"keys without keeping", rule("pattern: a\n    permission: write\n    keys: [a]"), `5: keys go with apply: keep`},
		{"keys with a review", rule("{pattern: a, permission: write, apply: review, keys: [a]}"), `3: keys go with apply: keep`},
		{"no keys", rule("{pattern: a, permission: write, apply: keep, keys: []}"), `3: keys is empty: name keys of the file, or leave it out to keep all of the file`},
		{"keys that are no list", rule("{pattern: a, permission: write, apply: keep, keys: a}"), `3: keys is a list of keys of a JSON file, not a single value`},
		{"a malformed key", rule("pattern: a\n    permission: write\n    apply: keep\n    keys: [a, b..c]"), `6: key "b..c": a name is missing or malformed: want names with dots between them, such as history or projects.*.history; a name with other characters in quotes, as in projects."a.b"`},
		{"a key that is given twice", rule("{pattern: a, permission: write, apply: keep, keys: [a, a]}"), `3: key "a" is given twice`},
		{"scratch that is no list", "version: 1\npreset: agent-safe\nscratch: node_modules\n", `3: scratch is a list of directories, not a single value`},
		{"a scratch directory that is no text", "version: 1\npreset: agent-safe\nscratch:\n  - [a]\n", `4: a scratch directory is text, not a list: quote a value that begins with * { or [`},
		{"strict in words", rule("pattern: a\n    strict: yes"), `4: strict is true or false, not "yes"`},
		{"a priority in words", rule("pattern: a\n    priority: high"), `4: priority "high" is no whole number between -2147483648 and 2147483647`},
		{"a priority too high", rule("pattern: a\n    priority: 2147483648"), `4: priority "2147483648" is no whole number between -2147483648 and 2147483647`},
		{"a malformed pattern", rule("permission: none\n    pattern: 'a[b'"), `4: pattern "a[b": a class is not closed: ] is missing`},
		{"a pattern that is a list", rule("pattern: [ab]"), `3: pattern is text, not a list: quote a value that begins with * { or [`},
		{"a pattern that is a mapping", rule("pattern: {a,b}"), `3: pattern is text, not a mapping: quote a value that begins with * { or [`},
		{"a pattern that is a tag", rule("pattern: !a"), `3: pattern is plain text: quote a value that begins with ! or &`},
		{"a pattern with an anchor", rule("pattern: &a b"), `3: pattern is plain text: quote a value that begins with ! or &`},
		{"an alias", "version: 1\nrules:\n  - &r {pattern: a, permission: read}\n  - *r\n", `4: a rule is a mapping, not an alias`},
		{"binary text", rule("pattern: !!binary /w=="), `3: pattern is plain text: quote a value that begins with ! or &`},
		{"an unquoted star", rule("pattern: *.pem"), `3: not YAML: after * or & a name is missing; quote a value that begins with one of * & ! { [ @ % ` + "` | >"},
		{"an unquoted star and a word", rule("{pattern: *pem, permission: none}"), `3: not YAML: * refers to another value, and there is none of this name`},
		{"an unquoted brace with more behind", rule("pattern: {a,b}.c"), `3: not YAML: the indentation does not fit the lines above: keys of a mapping begin in one column; quote a value that begins with one of * & ! { [ @ % ` + "` | >"},
		{"a tab", "version: 1\nrules:\n\t- pattern: a\n", `3: not YAML: the line is indented with a tab: YAML takes spaces only`},
		{"an open quote", rule("pattern: 'a\n    permission: read"), `3: not YAML: a quotation mark is not closed`},
		{"broken UTF-8", rule("pattern: \xff"), `3: not YAML: the file is not UTF-8 text`},
		{"a control character", rule("pattern: \x01"), `3: not YAML: control characters are not allowed`},
		{"a second document", "version: 1\npreset: read-only\n---\nversion: 1\n", `3: a second document begins: the file holds one`},
		{"broken YAML behind the document", "version: 1\npreset: read-only\n---\n'a\n", `4: not YAML: a quotation mark is not closed`},
		{"no end of brackets", strings.Repeat("[", 20000), `1: not YAML: lists and mappings are nested too deeply`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policyfile.Load(strings.NewReader(tt.text), "p.yaml")
			if want := "p.yaml:" + tt.want; !errdefs.Is(err, errdefs.Invalid) || err.Error() != want {
				t.Errorf("Load error = %v\nwant         %s", err, want)
			}
		})
	}
}

func TestLoadIsBounded(t *testing.T) {
	endless := strings.NewReader("version: 1\npreset: read-only\n" + strings.Repeat("# and on\n", 1<<20))
	if _, err := policyfile.Load(endless, "p"); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a file of 9 MiB: error = %v, want Invalid", err)
	}
	bomb := "version: 1\na: &a [x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8))
	}
	if _, err := policyfile.Load(strings.NewReader(bomb), "p"); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("nested aliases: error = %v, want Invalid", err)
	}
}

func TestLoadTellsAFailingReaderFromABadFile(t *testing.T) {
	_, err := policyfile.Load(iotest.ErrReader(errors.New("disk on fire")), "p")
	if !errdefs.Is(err, errdefs.Unavailable) || err.Error() != "p: read: disk on fire" {
		t.Errorf("Load error = %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"version: 1\nrules:\n  - {pattern: '**/*', permission: read, type: glob, priority: 3}\n",
		"version: 1\npreset: development\n", "version: 1\nrules:\n- pattern: *a\n", "a: &a [*a]\n", "---\n---\n", "version: 1\nrules: [{pattern: \"\\0\", permission: none}]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := policyfile.Load(strings.NewReader(text), "p")
		if err != nil {
			if !errdefs.Is(err, errdefs.Invalid) || !strings.HasPrefix(err.Error(), "p:") {
				t.Fatalf("error = %v, want Invalid with the file's name", err)
			}
			return
		}
		all, err := d.AllRules()
		if err != nil {
			t.Fatal(err)
		}
		if err := policyfile.SchemaAccepts(t, text); err != nil && len(text) < 200 {
			t.Errorf("Load accepts what the schema refuses: %v", err)
		}
		if p, err := policy.Compile(all, policy.Options{}); err == nil {
			p.Decide("/a/b")
		}
	})
}

func compile(t *testing.T, rules []policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
