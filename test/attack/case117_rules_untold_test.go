package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

var attackHidingRules = program("learn of the rules that hide", func(in *inside, _ []string) {
	for _, path := range []string{"docs", "docs/new", "docs/f", "."} {
		status, answer := onBoard("POST", "/lock", `{"paths":["`+path+`"]}`)
		in.is("a lock of "+path+": "+answer, status, 403)
		in.is("a lock of "+path+" tells of no hidden name: "+answer, strings.Contains(answer, "payroll"), false)
		in.is("a lock of "+path+" tells of no file of the host: "+answer, strings.Contains(answer, "policy.yaml"), false)
	}
	for path, do := range map[string]func(string) error{
		"docs/new": func(p string) error { return os.Mkdir(p, 0o755) },
		"docs":     func(p string) error { return os.Chmod(p, 0o777) },
		"docs/f":   os.Remove,
	} {
		in.is("a change of "+path, do(path) != nil, true)
	}
	notes, err := os.ReadFile("/run/agentfense/denied.jsonl")
	in.is("the notes: "+string(notes), err == nil && strings.Contains(string(notes), `docs"`), true)
	in.is("the notes tell of no hidden name: "+string(notes), strings.Contains(string(notes), "payroll"), false)
})

// A directory shows because of what is visible below it, although a rule hides it. Programs inside
// do not learn the pattern of that rule, which may name what else it hides, nor where on the host a
// rule was written.
func TestNoProgramLearnsARuleThatHides(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"docs/f": "x", "payroll-2027/f": "secret"})
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	err := os.WriteFile(rules, []byte(`version: 1
rules:
  - {pattern: "/{docs,payroll-2027}/", permission: none}
  - {pattern: /docs/f, permission: read, priority: 1}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	passes(t, s, attackHidingRules, nil, "--policy", rules, "--board")
}
