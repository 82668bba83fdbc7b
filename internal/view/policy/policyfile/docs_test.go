package policyfile_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

const page = "../../../../docs/policy.md"

// TestTheExamplesOfTheDocumentationAreTrue loads each yaml block of the page,
// and decides the paths that the comments at its end name.
func TestTheExamplesOfTheDocumentationAreTrue(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	claim := regexp.MustCompile(`(?m)^# (/\S*): (none|view|read|write|traversable)$`)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	claims := 0
	for _, block := range blocks {
		if err := policyfile.SchemaAccepts(t, block[1]); err != nil {
			t.Errorf("the schema refuses an example: %v\n%s", err, block[1])
		}
		document, err := policyfile.Load(strings.NewReader(block[1]), "example")
		if err != nil {
			t.Errorf("%v\n%s", err, block[1])
			continue
		}
		all, err := document.AllRules()
		if err != nil {
			t.Fatal(err)
		}
		p := compile(t, all)
		for _, m := range claim.FindAllStringSubmatch(block[1], -1) {
			claims++
			if d := p.Decide(vpath.Path(m[1])); outcome(d) != m[2] {
				t.Errorf("%s is %s (%s), the page says %s, by\n%s", m[1], outcome(d), d.Reason, m[2], block[1])
			}
		}
	}
	if len(blocks) < 4 || claims < 20 {
		t.Errorf("%s has %d examples with %d claims: were they read?", page, len(blocks), claims)
	}
}

func TestTheDocumentationNamesEveryPreset(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range preset.Names() {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("%s has no row for the preset %s", page, name)
		}
	}
}

// outcome is "none", "view", "read", "write", or "traversable".
func outcome(d policy.Decision) string {
	if d.Permission == policy.None && d.Traversable {
		return "traversable"
	}
	return d.Permission.String()
}
