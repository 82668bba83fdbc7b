package policyfile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

func TestExpectations(t *testing.T) {
	const text = `version: 1
rules:
  - {pattern: "/src/", permission: write}
  - {pattern: "/docs/api/*.md", permission: read}
expect:
  - {path: /src/a.go, permission: write}
  - {path: src, permission: read}
  - {path: /docs/, permission: view}
  - {path: /docs, permission: none}
`
	doc, err := policyfile.Load(strings.NewReader(text), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := policyfile.SchemaAccepts(t, text); err != nil {
		t.Errorf("the schema refuses it: %v", err)
	}
	got := map[string]bool{}
	for _, o := range policyfile.Test(compile(t, doc.Rules), doc.Expect) {
		got[o.Source+" "+o.Got.String()] = o.Holds()
	}
	want := map[string]bool{"p.yaml:6 write": true, "p.yaml:7 write": false, "p.yaml:8 view": true, "p.yaml:9 none": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Test (-want +got):\n%s", diff)
	}
	var b strings.Builder
	if err := doc.Write(&b); err != nil {
		t.Fatal(err)
	}
	again, err := policyfile.Load(strings.NewReader(b.String()), "p.yaml")
	if err != nil || len(again.Expect) != 4 || !again.Expect[2].Dir || again.Expect[1].Path != "/src" {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

func TestMalformedExpectationsAreRefused(t *testing.T) {
	const before = "version: 1\npreset: read-only\nexpect:"
	for text, want := range map[string]string{
		" x":                                    "p:3: expect is a list, not a single value",
		"\n  - {path: /a}":                      "p:4: permission is missing in the expectation",
		"\n  - {permission: read}":              "p:4: path is missing in the expectation",
		"\n  - {path: /a, permission: raed}":    `p:4: unknown permission "raed": did you mean "read"?`,
		"\n  - {pattern: /a, permission: read}": `p:4: unknown key "pattern"`,
		"\n  - {path: /../a, permission: read}": "p:4: ",
	} {
		if _, err := policyfile.Load(strings.NewReader(before+text), "p"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q) = %v, want %q", text, err, want)
		}
	}
}
