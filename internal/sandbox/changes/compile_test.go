package changes

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestAPolicyIsCompiledOnce(t *testing.T) {
	rules := []policy.Rule{{Pattern: "/**", Permission: policy.Write, Type: policy.Glob, Source: "test"}}
	compiled := func(reserved ...vpath.Path) *policy.Policy {
		t.Helper()
		p, err := compile(rules, reserved)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := compiled()
	if compiled() != first {
		t.Error("the same rules are compiled again")
	}
	if p := compiled("/state"); p == first || p.Decide("/state").Permission != policy.None {
		t.Error("a reserved path is not none")
	}
	rules[0].Permission = policy.Read
	if p := compiled(); p == first || p.Decide("/f").Permission != policy.Read {
		t.Error("a rule that was changed counts as before")
	}
}
