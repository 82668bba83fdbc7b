package policy_test

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestAPolicyThatWasCompiledLatelyIsFound(t *testing.T) {
	rules := []policy.Rule{{Pattern: "/**", Permission: policy.Write, Type: policy.Glob, Source: "test"}}
	compiled := func(o policy.Options) *policy.Policy {
		t.Helper()
		p, err := policy.Compile(rules, o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := compiled(policy.Options{})
	if p := compiled(policy.Options{Reserved: []vpath.Path{"/state"}}); p == first || p.Decide("/state").Permission != policy.None {
		t.Error("a reserved path is not none")
	}
	if compiled(policy.Options{}) != first {
		t.Error("the same rules are compiled again after others")
	}
	rules[0].Permission = policy.Read
	if p := compiled(policy.Options{}); p == first || p.Decide("/f").Permission != policy.Read {
		t.Error("a rule that was changed counts as before")
	}
	rules[0].Permission = policy.Write
	if p := compiled(policy.Options{}); p != first || p.Decide("/f").Permission != policy.Write || p.Rules()[0].Permission != policy.Write {
		t.Error("the policy of the first rules has changed with the caller's")
	}
}
